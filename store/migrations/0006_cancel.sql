-- Cancel as a state, jobs that are acknowledged early, and what is asked from outside.
-- compatible-from: 1
-- functions: c781cefc186f

-- `cancel_requested_at` says that somebody wants it ended. `cancel_force_at`: from when on its process
-- is killed for it. `compensating`: all that is left to run is its type's on_cancel hook.
ALTER TABLE job
    ADD COLUMN cancel_force_at timestamptz,
    ADD COLUMN compensating boolean;

ALTER TABLE job_type
    ADD COLUMN cancel text NOT NULL DEFAULT 'anywhere',
    ADD COLUMN on_cancel boolean NOT NULL DEFAULT false;

-- Of a type that is acknowledged early: written before it starts. From then on it never runs again.
ALTER TABLE claim ADD COLUMN marked boolean;
