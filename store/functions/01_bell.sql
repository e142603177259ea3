-- The doorbell: how those who enqueue wake those who dispatch.

-- The channel is a digest because a schema's name may be longer than a channel's may.
CREATE OR REPLACE FUNCTION channel() RETURNS text
    LANGUAGE sql STABLE SET search_path FROM CURRENT
    RETURN 'jobctl_' || left(md5(current_schema()), 16);

CREATE OR REPLACE FUNCTION ring() RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    spacing constant bigint := 20;
    now_ms  bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    last_ms bigint := (SELECT last_value FROM ring_at);
BEGIN
    -- A last ring in the future means that the clock was set back.
    IF now_ms - last_ms >= spacing OR now_ms < last_ms THEN
        PERFORM setval('ring_at', now_ms);
        PERFORM pg_notify(channel(), '');
    END IF;
END
$$;

-- Something that dispatchers keep in memory (queues, lanes, drains) has changed.
CREATE OR REPLACE FUNCTION announce() RETURNS void
    LANGUAGE sql SET search_path FROM CURRENT
    BEGIN ATOMIC
        SELECT pg_notify(channel(), 'look');
    END;
