-- count_dead: how many dead jobs a question about them looks at, whether there are more, and how far
--   back it goes.
-- Index: dead_since, read backwards until one beyond `most`.
-- Parameters: since, until: each may be NULL; most.
SELECT
    least(count(*), %(most)s) AS jobs,
    count(*) > %(most)s AS capped,
    min(n.dead_since) FILTER (WHERE n.place <= %(most)s) AS back_to
FROM (
    SELECT d.dead_since, row_number() OVER (ORDER BY d.dead_since DESC) AS place
    FROM dead AS d
    WHERE (%(since)s::timestamptz IS NULL OR d.dead_since >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR d.dead_since < %(until)s)
    ORDER BY d.dead_since DESC
    LIMIT %(most)s + 1
) AS n;
