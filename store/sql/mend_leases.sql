-- mend_leases: a lease that was renewed in the future, because the database's clock has been set
--   back, begins now: its host renews it, or it ends as it would have.
-- Parameters: ahead (seconds; less is no matter).
UPDATE session
SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + (expires_at - renewed_at)
WHERE NOT dead AND renewed_at > clock_timestamp() + make_interval(secs => %(ahead)s);
