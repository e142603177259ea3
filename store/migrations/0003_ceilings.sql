-- Ceilings of a job type, and rows that nobody can enqueue but raw SQL could write.
-- compatible-from: 1

-- What the process of a slot may hold and use while it runs a job of the type; NULL: no ceiling.
ALTER TABLE job_type
    ADD COLUMN memory_bytes bigint,
    ADD COLUMN cpu_seconds double precision;

-- `enqueue_many` refuses all of these with a sentence. A row that came another way would spoil the
-- arithmetic of a whole batch: of the claim, of the settle, of the view.
ALTER TABLE job
    ADD CONSTRAINT names_are_short CHECK (
        type <> '' AND length(type) <= 200 AND queue <> '' AND length(queue) <= 100
        AND octet_length(key) <= 4000 AND octet_length(subject) <= 4000),
    ADD CONSTRAINT timeout_is_a_time CHECK (timeout_seconds > 0 AND timeout_seconds <= 31536000),
    ADD CONSTRAINT budget_is_positive CHECK (max_attempts >= 1),
    ADD CONSTRAINT version_is_not_negative CHECK (schema_version >= 0),
    ADD CONSTRAINT counts_have_room CHECK (attempt <= 2000000000 AND crashes <= 2000000000),
    ADD CONSTRAINT moments_are_dates CHECK (
        isfinite(created_at) AND isfinite(first_started_at) AND isfinite(first_failed_at));

ALTER TABLE job_key
    ADD CONSTRAINT ttl_is_a_time CHECK (ttl_seconds >= 0 AND ttl_seconds <= 3155760000);

-- How far an attempt had come when it ended: what the job's progress said then.
ALTER TABLE attempt ADD COLUMN progress jsonb;
CREATE OR REPLACE VIEW attempts AS
SELECT job_id, attempt, outcome, host, slot, pid, started_at, ended_at, exit_reason, signal,
       peak_memory_bytes, cpu_seconds, error_class, error_code, error, stack, progress
FROM attempt;
