-- undrain_session: this host claims again, whoever asked for the drain.
-- Index: the primary key.
-- Parameters: session.
UPDATE session SET drain_requested_at = NULL WHERE id = %(session)s;
