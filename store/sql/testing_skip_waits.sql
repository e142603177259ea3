-- testing_skip_waits: whatever waits for its time is due now; for an application's own tests.
UPDATE scheduled SET run_at = now() WHERE run_at > now();
