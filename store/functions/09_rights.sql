-- Who may call what: nobody but the owner, until `jobctl grants` has said so (store/rights.py).
--
-- Functions that are SECURITY DEFINER act with the owner's rights: they are the doors through which
-- roles without rights on the tables come in. So PUBLIC, to which PostgreSQL gives every new function,
-- must not have any; this comes last, after whatever was made anew. Each door has its search_path
-- pinned, as all functions here have, with pg_temp at its end: nobody's table stands for one of ours.
DO $$
DECLARE
    it regprocedure;
BEGIN
    FOR it IN
        SELECT p.oid::regprocedure
        FROM pg_proc AS p
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND pg_has_role(p.proowner, 'USAGE')
            AND NOT EXISTS (
                SELECT FROM pg_depend AS d
                WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', it);
    END LOOP;
END
$$;

-- Who was given the tables by hand, before there were roles, could call all functions because everybody
-- could: that goes on. No kind of role may insert into `job`, so none of those is meant.
DO $$
DECLARE
    them oid;
BEGIN
    FOR them IN
        SELECT DISTINCT a.grantee
        FROM pg_class AS c
        CROSS JOIN LATERAL aclexplode(c.relacl) AS a
        WHERE c.oid = 'job'::regclass AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type = 'INSERT'
    LOOP
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', current_schema(),
                       pg_get_userbyid(them));
    END LOOP;
END
$$;
