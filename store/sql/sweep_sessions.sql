-- sweep_sessions: lives that ended more than a day ago and hold nothing any more.
-- Parameters: none.
DELETE FROM session AS s
WHERE s.dead AND s.renewed_at < now() - interval '1 day'
    AND NOT EXISTS (SELECT FROM claim AS c WHERE c.session_id = s.id)
RETURNING 1;
