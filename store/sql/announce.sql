-- announce: what dispatchers and leases keep in memory has changed; commits with what changed it.
-- Parameters: none.
SELECT announce();
