-- Effects: whether something has been done to the world, asked and said by the attempts of jobs.
-- Called by their schema's name on connections of applications, inside transactions of theirs.

-- Whether this claim still is its attempt's. It stays so until the caller's transaction ends, unless
-- `lock` is false: a transaction that stays open must not keep a job from being taken over.
CREATE OR REPLACE FUNCTION claim_holds(job bigint, session bigint, claim_token bigint, lock boolean)
    RETURNS boolean
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF lock THEN
        PERFORM FROM claim AS c
        WHERE c.job_id = job AND c.session_id = session AND c.token = claim_token
        FOR KEY SHARE;
    ELSE
        PERFORM FROM claim AS c
        WHERE c.job_id = job AND c.session_id = session AND c.token = claim_token;
    END IF;
    RETURN FOUND;
END
$$;

-- An attempt is about to do something. With `mark` that is written down first. `state`:
--   new        nobody has done it; with `mark`, the mark is this attempt's
--   done       and this is its `value`
--   ambiguous  marked by an attempt that is over and never said; the mark is this attempt's now
--   busy       an attempt of another job, `marked_by`, has marked it and still runs
--   lost       the claim is not this attempt's any more: it must not act
CREATE OR REPLACE FUNCTION begin_effect(
    effect_key text, mark boolean, lock boolean, job bigint, session bigint, claim_token bigint,
    OUT state text, OUT value text, OUT marked_by bigint)
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    found_ record;
BEGIN
    IF NOT claim_holds(job, session, claim_token, lock) THEN
        state := 'lost';
        RETURN;
    END IF;
    IF NOT mark THEN
        SELECT e.* INTO found_ FROM effect AS e WHERE e.key = effect_key;
        state := CASE WHEN found_.state = 'done' THEN 'done'
                      WHEN found_.state = 'marked' THEN 'ambiguous' ELSE 'new' END;
        value := found_.value::text;
        RETURN;
    END IF;
    LOOP
        -- Waits for whoever is about to write the same key.
        INSERT INTO effect (key, state, job_id, session_id, token, marked_at, at)
        VALUES (effect_key, 'marked', job, session, claim_token, clock_timestamp(), clock_timestamp())
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            state := 'new';
            RETURN;
        END IF;
        SELECT e.* INTO found_ FROM effect AS e WHERE e.key = effect_key FOR UPDATE;
        EXIT WHEN FOUND;    -- else the mark was taken back meanwhile: it is our turn
    END LOOP;
    IF found_.state = 'done' THEN
        state := 'done';
        value := found_.value::text;
        RETURN;
    END IF;
    marked_by := found_.job_id;
    IF marked_by <> job AND claim_holds(marked_by, found_.session_id, found_.token, false) THEN
        state := 'busy';
        RETURN;
    END IF;
    state := 'ambiguous';
    UPDATE effect AS e
    SET job_id = job, session_id = session, token = claim_token, at = clock_timestamp()
    WHERE e.key = effect_key;
END
$$;

-- It is done; the first value stays. False: the claim was lost, and nothing is written.
CREATE OR REPLACE FUNCTION finish_effect(
    effect_key text, result text, job bigint, session bigint, claim_token bigint
) RETURNS boolean
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT claim_holds(job, session, claim_token, true) THEN
        RETURN false;
    END IF;
    INSERT INTO effect AS e (key, state, value, job_id, session_id, token, done_at, at)
    VALUES (effect_key, 'done', result::jsonb, job, session, claim_token, clock_timestamp(), clock_timestamp())
    ON CONFLICT (key) DO UPDATE
    SET state = 'done', value = excluded.value, job_id = job, session_id = session,
        token = claim_token, done_at = excluded.done_at, at = excluded.at
    WHERE e.state <> 'done';
    RETURN true;
END
$$;

-- It has surely not been done: the mark is taken back. False: the claim was lost.
CREATE OR REPLACE FUNCTION drop_effect(effect_key text, job bigint, session bigint, claim_token bigint)
    RETURNS boolean
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    IF NOT claim_holds(job, session, claim_token, true) THEN
        RETURN false;
    END IF;
    DELETE FROM effect AS e
    WHERE e.key = effect_key AND e.state = 'marked'
        AND e.job_id = job AND e.session_id = session AND e.token = claim_token;
    RETURN true;
END
$$;

-- What a handler said of its progress, with the moment at which it did instead of how long ago.
CREATE OR REPLACE FUNCTION dated_progress(said jsonb) RETURNS jsonb
    LANGUAGE sql STABLE STRICT SET search_path FROM CURRENT
    RETURN (said - 'ago') || jsonb_build_object('updated_at', to_char(
        (clock_timestamp() - make_interval(secs => coalesce((said ->> 'ago')::double precision, 0)))
            AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
