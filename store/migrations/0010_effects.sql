-- Effects: what jobs have done to the world, once for each key. And progress, with its time.
-- compatible-from: 1
-- functions: 7366f1ff03b1

-- `marked`: somebody was about to do it, and has not said that it is done. `value`: what it returned.
-- The claim is the one that wrote last. `at`: when; rows are kept for effect_keep after it.
CREATE TABLE effect (
    key        text PRIMARY KEY,
    state      text NOT NULL,
    value      jsonb,
    job_id     bigint NOT NULL,
    session_id bigint NOT NULL,
    token      bigint NOT NULL,
    marked_at  timestamptz,
    done_at    timestamptz,
    at         timestamptz NOT NULL,
    CONSTRAINT effect_state CHECK (state IN ('marked', 'done'))
);
CREATE INDEX effect_by_age ON effect (at);
