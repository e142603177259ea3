-- Which database roles `jobctl grants` has given which rights, so that migrating gives them those of new
-- tables and functions too.
-- compatible-from: 1
-- functions: af60c322ba57

CREATE TABLE grantee (
    role        text PRIMARY KEY,   -- its name: a restored database knows it by that
    kind        text NOT NULL CHECK (kind IN ('producer', 'worker', 'operator', 'read-only')),
    granted_at  timestamptz NOT NULL DEFAULT now()
);
