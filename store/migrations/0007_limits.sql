-- Limits: how many jobs of a key may be let in at once, and how fast, over all hosts.
-- compatible-from: 1
-- functions: 4765adce1d22
--
-- A job with a limit key is let in before it may stand in `ready`: it then holds a place, a row of its
-- own, until its attempt has ended. There is no counter that could be wrong: what is held is what is
-- there. Who waits stands in `blocked`.

-- They get one more parameter.
DROP FUNCTION enqueue(text, jsonb, text, text, text, integer, interval, timestamptz, interval, integer, integer);

ALTER TABLE job ADD COLUMN limit_key text;
ALTER TABLE job ADD CONSTRAINT limit_key_is_short CHECK (limit_key <> '' AND length(limit_key) <= 200);
ALTER TABLE job_type ADD COLUMN limit_key text;

-- What the operator has set. A key that ends with * is a pattern, and stands for every key that begins
-- like it, each with places of its own. The key itself counts first, then the longest pattern.
CREATE TABLE limit_rule (
    limit_key   text PRIMARY KEY,
    max_running integer,                -- places; NULL: any number
    per_seconds double precision,       -- one start in so many seconds; NULL: as fast as may be
    burst       integer NOT NULL DEFAULT 1, -- so many at once after a pause
    brake       boolean NOT NULL DEFAULT false,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text,
    reason      text,
    CONSTRAINT key_is_short CHECK (limit_key <> '' AND length(limit_key) <= 200),
    CONSTRAINT max_running_is_a_count CHECK (max_running BETWEEN 0 AND 1000000),
    CONSTRAINT per_seconds_is_a_time CHECK (per_seconds > 0 AND per_seconds <= 31536000),
    CONSTRAINT burst_is_a_count CHECK (burst BETWEEN 1 AND 1000000),
    CONSTRAINT a_brake_has_places CHECK (NOT brake OR max_running >= 1)
);

-- One row for each key that jobs have come with. Whoever lets in locks it: two at once would count the
-- same free place twice.
CREATE TABLE limit_state (
    limit_key   text PRIMARY KEY,
    rule        text,                   -- whose row in limit_rule counts; NULL: none does
    max_running integer,
    per_seconds double precision,
    burst       integer NOT NULL DEFAULT 1,
    brake       boolean NOT NULL DEFAULT false,
    next_start  timestamptz,            -- by the rate: when the next one would start if none waited
    held_until  timestamptz,            -- somebody was told to come back later: nobody starts before
    braked_to   double precision,       -- places that the brake leaves; NULL: all
    braked_at   timestamptz,            -- when it last took places away
    good        double precision NOT NULL DEFAULT 0,  -- endings lately, the older the less they count
    bad         double precision NOT NULL DEFAULT 0,
    judged_at   timestamptz,
    admit_at    timestamptz,            -- waiting jobs may be let in from then on
    used_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX limit_state_due ON limit_state (admit_at) WHERE admit_at IS NOT NULL;

-- The places that are held: by jobs in `ready` and `claim`, and in `scheduled` if the rate has given
-- them their moment.
CREATE TABLE place (
    job_id      bigint PRIMARY KEY,
    limit_key   text NOT NULL,
    admitted_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX place_by_key ON place (limit_key);

-- Who waits, in the order in which they are let in.
ALTER TABLE blocked
    ADD COLUMN limit_key text,
    ADD COLUMN priority smallint,
    ADD COLUMN seq bigint;
CREATE INDEX blocked_by_limit ON blocked (limit_key, priority DESC, seq) WHERE limit_key IS NOT NULL;

-- Notes: somebody of this key has come, or has left, since it was looked at. Seen when they commit.
CREATE TABLE limit_arrival (
    limit_key  text NOT NULL,
    held_until timestamptz              -- and nobody of it may start before
);

ALTER TABLE place SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE blocked SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE limit_arrival SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE limit_state SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
