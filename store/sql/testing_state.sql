-- testing_state: where a job stands, for an application's own tests.
-- {schema} is the quoted name of the schema, as in enqueue_many.
-- Parameters: id.
SELECT j.state FROM {schema}.jobs AS j WHERE j.id = %(id)s::bigint
