-- read_health: what an operator should know about the schema itself. Scans all placements: for a
--   person who asks, not for a loop.
-- Parameters: none.
SELECT
    (SELECT count(*) FROM placement_violations()) AS misplaced,
    (SELECT string_agg(format('#%%s %%s', v.job_id, v.problem), '; ')
     FROM (SELECT * FROM placement_violations() LIMIT 5) AS v) AS examples,
    to_regclass(format('history_%%s', to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD')))
        IS NOT NULL AS partitions_ahead,
    (SELECT count(*) FROM session AS s
     WHERE NOT s.dead AND s.expires_at > clock_timestamp()) AS supervisors,
    (SELECT count(*) FROM session AS s
     WHERE NOT s.dead AND s.expires_at > clock_timestamp() AND s.ready > 0) AS ready,
    (SELECT count(*) FROM session AS s
     WHERE s.leader AND NOT s.dead AND s.expires_at > clock_timestamp()) AS leaders;
