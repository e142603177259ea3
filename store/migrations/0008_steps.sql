-- Next steps: a job that comes after others waits for them in `blocked`.
-- compatible-from: 1
-- functions: 3533bc467a81
--
-- An edge is made with its child and never changed but once, when its parent has succeeded: `met_at`.
-- A host with older code does not let children go when it settles; the leader's sweep does.

-- Which job comes after which. No foreign keys: both ends leave `job` when they finish. Kept as long as
-- history is, for those who want to see what led to what.
CREATE TABLE job_edge (
    child      bigint NOT NULL,
    parent     bigint NOT NULL,
    on_dead    text NOT NULL,
    met_at     timestamptz,                 -- when the child no longer waited for this parent
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT job_edge_by_child PRIMARY KEY (child, parent),
    CONSTRAINT on_dead_is_known CHECK (on_dead IN ('hold', 'cancel')),
    CONSTRAINT not_its_own_parent CHECK (child <> parent)
) WITH (fillfactor = 90, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 20000);
CREATE INDEX job_edge_by_parent ON job_edge (parent);
CREATE INDEX job_edge_by_age ON job_edge (created_at);

-- `reason` is what holds the job: 'parents', and then `waits_for` is how many of them.
ALTER TABLE blocked
    ADD COLUMN waits_for integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT waits_for_is_a_count CHECK (waits_for >= 0);
ALTER TABLE blocked SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Its list of parameters grows, which CREATE OR REPLACE would take for another function. Not there where
-- everything is new: functions come last.
DROP FUNCTION IF EXISTS enqueue(text, jsonb, text, text, text, integer, interval, timestamptz, interval,
                                integer, integer, text);
