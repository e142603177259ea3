-- testing_enqueued: the jobs that have not ended, for an application's own tests, in its transaction.
-- {schema} is the quoted name of the schema, as in enqueue_many.
-- Parameters: type (NULL: any).
SELECT j.id, j.type, j.state, j.args::text, j.queue, j.priority, j.key, j.subject, j.run_at
FROM {schema}.jobs AS j
WHERE j.finished_at IS NULL
    AND (%(type)s::text IS NULL OR j.type = %(type)s::text)
ORDER BY j.id
