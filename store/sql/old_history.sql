-- old_history: partitions of history that end before everything that is kept begins.
-- Parameters: keep (seconds).
SELECT c.relname
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'history'::regclass
    AND c.relname ~ '^history_[0-9]{8}$'
    AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1
        < ((now() - make_interval(secs => %(keep)s)) AT TIME ZONE 'UTC')::date
ORDER BY c.relname;
