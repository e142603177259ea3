-- Up to which number the leader has counted the jobs that were enqueued, for the metrics.
-- compatible-from: 1

-- One row. Jobs up to `counted_to` are counted; those up to `next_to` can be once no transaction
-- below `settled_at` is open, because ids are taken before they are committed.
CREATE TABLE enqueue_mark (
    lone       boolean PRIMARY KEY DEFAULT true CONSTRAINT there_is_one CHECK (lone),
    counted_to bigint NOT NULL,
    next_to    bigint NOT NULL,
    settled_at xid8 NOT NULL
);
-- What is there already was enqueued before anybody counted.
INSERT INTO enqueue_mark (counted_to, next_to, settled_at)
SELECT n.newest, n.newest, pg_snapshot_xmax(pg_current_snapshot())
FROM (
    SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('job', 'id')::regclass), 0) AS newest
) AS n;
