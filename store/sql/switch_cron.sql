-- switch_cron: an operator enables or disables a cron. Enabled, it counts from now on: what was
--   planned while it was off is not made up for.
-- Guard: only what is not so already.
-- Parameters: name, enable, actor, reason (or NULL).
WITH switched AS (
    UPDATE cron_entry AS e
    SET disabled_at = CASE WHEN %(enable)s THEN NULL ELSE now() END,
        disabled_by = CASE WHEN %(enable)s THEN NULL ELSE %(actor)s END,
        disabled_reason = CASE WHEN %(enable)s THEN NULL ELSE %(reason)s END,
        judged_until = CASE WHEN %(enable)s THEN clock_timestamp() ELSE e.judged_until END,
        next_at = NULL
    WHERE e.name = %(name)s AND (e.disabled_at IS NOT NULL) = %(enable)s
    RETURNING e.name
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, CASE WHEN %(enable)s THEN 'cron enable' ELSE 'cron disable' END,
           jsonb_build_object('cron', s.name), 1, %(reason)s
    FROM switched AS s
)
SELECT name FROM switched;
