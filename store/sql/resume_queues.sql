-- resume_queues: these queues are claimed from again.
-- Guard: only what is paused; of two who resume it one gets the row.
-- Parameters: names, actor, reason (or NULL).
WITH resumed AS (
    DELETE FROM queue_pause AS p
    WHERE p.name = ANY(%(names)s::text[])
    RETURNING p.name, p.paused_at, p.paused_by, p.paused_reason
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'queue resume', jsonb_build_object('queues', jsonb_agg(to_jsonb(r))), count(*),
           %(reason)s
    FROM resumed AS r
    HAVING count(*) > 0
)
SELECT name FROM resumed;
