-- read_job_types: what the newest registered code says of these types.
-- Index: the primary key.
-- Parameters: names (array).
SELECT to_jsonb(t) - 'registered_at' FROM job_type AS t WHERE t.name = ANY(%(names)s::text[]);
