-- server_clock: the database's clock, in seconds of the epoch, and for how many seconds this server
--   has been running.
-- Parameters: none.
SELECT
    extract(epoch FROM clock_timestamp())::double precision,
    extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::double precision;
