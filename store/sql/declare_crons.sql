-- declare_crons: what this host's code and file say of crons, in place of what it said before.
-- Parameters: session, crons (a JSON array of store/cron_spec.py's objects).
SELECT declare_crons(%(session)s, %(crons)s::jsonb);
