-- request_drain: live supervisors are asked to claim nothing more, or (`drain` false) to claim again.
-- Guard: NOT dead and a lease that is not over: nobody else would answer.
-- Parameters: host (NULL: all), drain, actor, reason (or NULL).
WITH asked AS (
    UPDATE session AS n
    SET drain_requested_at = CASE WHEN %(drain)s THEN coalesce(n.drain_requested_at, now()) END
    WHERE (%(host)s::text IS NULL OR n.host = %(host)s) AND NOT n.dead AND n.expires_at > now()
    RETURNING n.id, n.host
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, CASE WHEN %(drain)s THEN 'drain' ELSE 'undrain' END,
           jsonb_build_object('hosts', jsonb_agg(a.host)), count(*), %(reason)s
    FROM asked AS a
    HAVING count(*) > 0
)
SELECT id, host FROM asked;
