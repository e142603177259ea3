-- reconcile_crons: makes one entry of what all hosts declare of a cron, and retires what nobody does.
-- Guard: whoever does it comes to the same, so two leaders do no harm.
-- Parameters: retire_after, forget_after (seconds).
SELECT reconcile_crons(
    make_interval(secs => %(retire_after)s), make_interval(secs => %(forget_after)s));
