-- Which span has enqueued a job, for those who trace.
-- compatible-from: 1
-- functions: 8ab007a32416

ALTER TABLE job
    ADD COLUMN traceparent text,
    ADD CONSTRAINT traceparent_is_one CHECK (
        traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$');
