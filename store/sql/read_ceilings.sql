-- read_ceilings: the largest ceiling of memory that a type declares, and how many declare none.
-- Parameters: none.
SELECT
    max(memory_bytes) AS largest,
    (SELECT t.name FROM job_type AS t WHERE t.memory_bytes IS NOT NULL
     ORDER BY t.memory_bytes DESC, t.name LIMIT 1) AS type,
    count(*) FILTER (WHERE memory_bytes IS NULL) AS without
FROM job_type;
