-- replay_dead: dead -> queued, with its budgets new, perhaps with other arguments.
-- Why a function: Python, SQL and the command line replay through the same one; it audits and rings.
-- Guard: it still stands in `dead`; whoever comes second gets no row.
-- Index: the primary keys of dead and job.
-- Parameters: ids, actor, reason (or NULL), filter (JSON: what was asked for), args (or NULL), set
--   (an object), unset (names).
SELECT job_id
FROM replay_many(%(ids)s::bigint[], %(actor)s::text, %(reason)s::text, %(filter)s::text::jsonb,
                 %(args)s::text::jsonb, %(set)s::text::jsonb, %(unset)s::text[]);
