-- set_limit: what a key, or a pattern, allows from now on.
-- Guard: the row of the rule; those who let in see it at their next look.
-- Parameters: key, max_running, per_seconds, burst, brake, actor, reason.
SELECT set_limit(
    %(key)s, %(max_running)s::integer, %(per_seconds)s::double precision, %(burst)s::integer,
    %(brake)s::boolean, %(actor)s, %(reason)s);
