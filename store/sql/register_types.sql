-- register_types: what this host's code says of its types, for SQL enqueue, the command line, the
--   leader and the view. The newest deploy wins; code with an older schema version never does.
-- Index: the primary key; rows that would not change are left alone.
-- Parameters: types (a JSON array of objects with the table's columns).
INSERT INTO job_type AS t (
    name, queue, priority, timeout_seconds, soft_timeout_seconds, max_attempts, max_crashes,
    min_backoff_seconds, max_backoff_seconds, max_doublings, max_elapsed_seconds, ack,
    schema_version, key_ttl_seconds, owner, link, memory_bytes, cpu_seconds, cancel, on_cancel,
    limit_key)
SELECT
    n.name, n.queue, n.priority, n.timeout_seconds, n.soft_timeout_seconds, n.max_attempts,
    n.max_crashes, n.min_backoff_seconds, n.max_backoff_seconds, n.max_doublings,
    n.max_elapsed_seconds, n.ack, n.schema_version, n.key_ttl_seconds, n.owner, n.link,
    n.memory_bytes, n.cpu_seconds, n.cancel, n.on_cancel, n.limit_key
FROM jsonb_populate_recordset(NULL::job_type, %(types)s::jsonb) AS n
ORDER BY n.name
ON CONFLICT (name) DO UPDATE SET
    queue = excluded.queue,
    priority = excluded.priority,
    timeout_seconds = excluded.timeout_seconds,
    soft_timeout_seconds = excluded.soft_timeout_seconds,
    max_attempts = excluded.max_attempts,
    max_crashes = excluded.max_crashes,
    min_backoff_seconds = excluded.min_backoff_seconds,
    max_backoff_seconds = excluded.max_backoff_seconds,
    max_doublings = excluded.max_doublings,
    max_elapsed_seconds = excluded.max_elapsed_seconds,
    ack = excluded.ack,
    schema_version = excluded.schema_version,
    key_ttl_seconds = excluded.key_ttl_seconds,
    owner = excluded.owner,
    link = excluded.link,
    memory_bytes = excluded.memory_bytes,
    cpu_seconds = excluded.cpu_seconds,
    cancel = excluded.cancel,
    on_cancel = excluded.on_cancel,
    limit_key = excluded.limit_key,
    registered_at = now()
WHERE t.schema_version <= excluded.schema_version
    AND to_jsonb(t) - 'registered_at' IS DISTINCT FROM to_jsonb(excluded) - 'registered_at';
