-- discard_dead: dead -> discarded. Its key is free at once.
-- Guard: it still stands in `dead`; whoever comes second gets no row.
-- Index: the primary keys of dead, job and job_key.
-- Parameters: ids, actor, reason, filter (JSON: what was asked for).
SELECT job_id
FROM discard_many(%(ids)s::bigint[], %(actor)s::text, %(reason)s::text, %(filter)s::text::jsonb);
