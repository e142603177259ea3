-- ring: something is due; commits with the rows that are.
-- Parameters: none.
SELECT ring();
