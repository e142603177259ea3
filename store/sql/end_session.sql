-- end_session: a supervisor leaves and holds no claim any more.
-- Guard: its own row only.
-- Parameters: session.
DELETE FROM session WHERE id = %(session)s;
