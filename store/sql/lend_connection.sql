-- lend_connection: a connection of a slot is lent to a handler.
-- No statement, and no open transaction, may outlive the job's deadline; 0 is for ever.
-- Parameters: milliseconds, name (what pg_stat_activity shows).
SELECT
    set_config('statement_timeout', %(milliseconds)s, false),
    set_config('idle_in_transaction_session_timeout', %(milliseconds)s, false),
    set_config('application_name', %(name)s, false);
