-- server_age: for how many seconds this server has been running.
-- Parameters: none.
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::double precision;
