-- pause_queues: nothing of these queues is claimed from now on, whatever is started or deployed.
-- Guard: only what is not paused already: who did it first, and why, stays on record.
-- Parameters: names, actor, reason (or NULL).
WITH paused AS (
    INSERT INTO queue_pause (name, paused_by, paused_reason)
    SELECT n.name, %(actor)s, %(reason)s
    FROM unnest(%(names)s::text[]) AS n (name)
    ORDER BY n.name
    ON CONFLICT (name) DO NOTHING
    RETURNING name
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'queue pause', jsonb_build_object('queues', jsonb_agg(p.name)), count(*),
           %(reason)s
    FROM paused AS p
    HAVING count(*) > 0
)
SELECT name FROM paused;
