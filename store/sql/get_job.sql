-- get_job: one job as the view has it; no row if there is none. For applications, whose search_path
--   is their own: the schema's name is put in the place of {schema}. JSON leaves as text.
-- Index: the primary keys of job and of the placements, history_by_id.
-- Parameters: id.
SELECT (to_jsonb(g) - 'args' - 'progress' - 'result')::text, g.args::text, g.progress::text, g.result::text
FROM {schema}.get(%(id)s::bigint) AS g
