-- count_dead: how many dead jobs a question about them looks at, and how far back.
-- Index: dead_since, read backwards until `most`.
-- Parameters: since, until: each may be NULL; most.
SELECT count(*) AS jobs, min(n.dead_since) AS back_to
FROM (
    SELECT d.dead_since
    FROM dead AS d
    WHERE (%(since)s::timestamptz IS NULL OR d.dead_since >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR d.dead_since < %(until)s)
    ORDER BY d.dead_since DESC
    LIMIT %(most)s
) AS n;
