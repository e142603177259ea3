"""Four kinds of roles, each logged in for itself: what each may, and that it may nothing else.

Both are tried, thing by thing, from the one definition in `store/rights.py`; what the roles are for
is told in `tests/system/test_roles.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from jobctl.store import grants, rights
from jobctl.store.errors import SchemaError
from jobctl.store.grants import grants_text
from jobctl.store.migrate import migrate
from jobctl.store.migration_files import ours, parse
from jobctl.store.rights import USUAL_NAMES, Kind, Right, lines
from tests.logins import LoginServer
from tests.servers import guarded_folder

THINGS = """
    SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname
    FROM pg_class AS c
    WHERE c.relnamespace = 'jobctl'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
        AND NOT c.relispartition
    UNION ALL
    SELECT 'function', p.proname FROM pg_proc AS p WHERE p.pronamespace = 'jobctl'::regnamespace
"""
REFUSED = "42501"
Statement = sql.SQL | sql.Composed


@pytest.fixture(scope="module")
def server() -> Iterator[LoginServer]:
    with guarded_folder() as folder:
        server = LoginServer(folder / "logins")
        migrate(server.owner)
        grants.grant(server.owner, [(name, kind) for kind, name in USUAL_NAMES.items()])
        for kind, name in USUAL_NAMES.items():
            server.login(_user(kind), name)
        server.login("stranger")
        yield server


@pytest.fixture
def owner(server: LoginServer) -> Iterator[psycopg.Connection]:
    """Whatever it does is taken back."""
    with psycopg.connect(server.owner) as connection:
        yield connection
        connection.rollback()


def _user(kind: Kind) -> str:
    return f"a_{kind.replace('-', '_')}"


def _undecided(connection: psycopg.Connection) -> set[tuple[str, str]]:
    """What differs between the schema and the definition."""
    there = {(what, name) for what, name in connection.execute(THINGS)}
    return there ^ {(what, name) for what, name, _ in lines()}


def test_a_table_was_added_and_nobody_decided_who_may_read_it(owner: psycopg.Connection) -> None:
    """Each thing of the schema has a line in `store/rights.py`, and each line a thing."""
    assert _undecided(owner) == set()
    owner.execute("CREATE TABLE jobctl.forgotten ()")
    owner.execute("CREATE FUNCTION jobctl.forgotten_too() RETURNS int LANGUAGE sql RETURN 1")
    owner.execute("DROP VIEW jobctl.edges")
    assert _undecided(owner) == {
        ("table", "forgotten"),
        ("function", "forgotten_too"),
        ("table", "edges"),
    }


def test_no_two_functions_have_one_name(owner: psycopg.Connection) -> None:
    """They are granted by their names."""
    row = owner.execute(
        "SELECT count(*), count(DISTINCT proname) FROM pg_proc"
        " WHERE pronamespace = 'jobctl'::regnamespace"
    ).fetchone()
    assert row is not None
    assert row[0] == row[1]


def _tries(connection: psycopg.Connection) -> list[tuple[Right, Statement]]:
    """Everything that there is to do in the schema, each as a statement that does it, or fails for
    another reason than a missing right."""
    tries: list[tuple[Right, Statement]] = []
    views = {name for (name,) in connection.execute("SELECT viewname FROM pg_views")}
    for what, name, _ in lines():
        thing = sql.Identifier("jobctl", name)
        if name in views:
            # Most cannot be written to whoever asks: who may is read from the catalog instead.
            reading = sql.SQL("SELECT * FROM {} LIMIT 0").format(thing)
            tries.append((Right(what, name, "SELECT"), reading))
        elif what == "table":
            columns = [
                row[0]
                for row in connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                    " AND NOT attisdropped AND attidentity = '' AND attgenerated = ''",
                    [f"jobctl.{name}"],
                )
            ]
            tries += [
                (Right(what, name, "SELECT"), sql.SQL("SELECT * FROM {} LIMIT 0").format(thing)),
                (Right(what, name, "INSERT"),
                 sql.SQL("INSERT INTO {} DEFAULT VALUES").format(thing)),
                (Right(what, name, "DELETE"), sql.SQL("DELETE FROM {} WHERE false").format(thing)),
                (Right(what, name, "TRUNCATE"), sql.SQL("TRUNCATE {}").format(thing)),
                (Right(what, name, "TRIGGER"), sql.SQL(
                    "CREATE TRIGGER t AFTER INSERT ON {} EXECUTE FUNCTION"
                    " pg_catalog.suppress_redundant_updates_trigger()").format(thing)),
            ]  # fmt: skip
            tries += [
                (
                    Right(what, name, "UPDATE", column),
                    sql.SQL("UPDATE {} SET {} = NULL WHERE false").format(
                        thing, sql.Identifier(column)
                    ),
                )
                for column in columns
            ]
        elif what == "sequence":
            literal = sql.Literal(f"jobctl.{name}")
            tries += [
                (Right(what, name, "SELECT"), sql.SQL("SELECT last_value FROM {}").format(thing)),
                (Right(what, name, "USAGE"), sql.SQL("SELECT nextval({})").format(literal)),
                (Right(what, name, "UPDATE"), sql.SQL("SELECT setval({}, 1)").format(literal)),
            ]
        else:
            row = connection.execute(
                "SELECT array(SELECT format_type(t, NULL) FROM unnest(proargtypes) AS t),"
                # A strict function is not even called with NULL.
                " CASE WHEN proisstrict THEN '{}' END"
                " FROM pg_proc WHERE proname = %s AND pronamespace = 'jobctl'::regnamespace",
                [name],
            ).fetchone()
            assert row is not None
            nothing = sql.SQL(", ").join(
                sql.SQL("{}::" + kind).format(sql.Literal(row[1])) for kind in row[0]
            )
            tries.append(
                (Right(what, name, "EXECUTE"), sql.SQL("SELECT {}({})").format(thing, nothing))
            )
    return tries


def _allowed(kind: Kind | None, right: Right) -> bool:
    if kind is None:
        return False
    has = rights.rights(kind)
    if right in has or (right.column and right._replace(column="") in has):
        return True
    # nextval takes either.
    return right.privilege == "USAGE" and right._replace(privilege="UPDATE") in has


def _do(connection: psycopg.Connection, statement: Statement) -> str:
    """How PostgreSQL refused it; '' if it did not, or for another reason."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.Error as error:
        # Of a function that may be called, what it then meets in the tables counts as well.
        return str(error.diag.message_primary) if error.sqlstate == REFUSED else ""
    return ""


@pytest.mark.parametrize("kind", [*Kind, None])
def test_everything_is_tried(
    server: LoginServer, owner: psycopg.Connection, kind: Kind | None
) -> None:
    """What stands in the definition goes, and whatever does not is refused; a stranger, of no role
    at all, is let in nowhere."""
    tries = _tries(owner)
    assert len(tries) > 400
    dsn = server.dsn("stranger" if kind is None else _user(kind))
    wrong = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for right, statement in tries:
            said = _do(connection, statement)
            if bool(said) is _allowed(kind, right):
                wrong.append(f"{right}: {said or 'was let in'}")
    assert wrong == []
    writing = (
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'jobctl'::regnamespace"
        " AND c.relkind = 'v' AND has_any_column_privilege(%s, c.oid, 'INSERT, UPDATE')"
    )
    user = "stranger" if kind is None else _user(kind)
    assert owner.execute(writing, [user]).fetchall() == []


@pytest.mark.parametrize("kind", [*Kind, None])
def test_nobody_but_the_owner_makes_anything(server: LoginServer, kind: Kind | None) -> None:
    """A table or function in our schema would stand for one of ours."""
    attempts = (
        "CREATE TABLE jobctl.mine ()",
        "CREATE FUNCTION jobctl.mine() RETURNS int LANGUAGE sql RETURN 1",
        "ALTER TABLE jobctl.job ADD COLUMN mine int",
        "ALTER FUNCTION jobctl.get(bigint) RESET ALL",
        "DROP TABLE jobctl.job CASCADE",
        "DROP TABLE jobctl.history CASCADE",
        "GRANT SELECT ON jobctl.job TO PUBLIC",
        "CREATE ROLE mine",
    )
    dsn = server.dsn("stranger" if kind is None else _user(kind))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for attempt in attempts:
            said = _do(connection, sql.SQL(attempt))
            granted_nothing = attempt.startswith("GRANT")  # then it is a warning
            assert said or granted_nothing, attempt
    with psycopg.connect(server.owner) as connection:
        query = "SELECT has_table_privilege('stranger', 'jobctl.job', 'SELECT')"
        assert connection.execute(query).fetchone() == (False,)


def test_a_right_was_taken_away_and_it_is_noticed(server: LoginServer) -> None:
    """The control of all of the above; migrating puts it back."""
    worker, right = USUAL_NAMES[Kind.WORKER], Right("table", "claim", "DELETE")
    call = Right("function", "ring", "EXECUTE")
    with psycopg.connect(server.owner, autocommit=True) as owner:
        assert rights.lacking(owner, Kind.WORKER, "jobctl", worker) == []
        owner.execute(f"REVOKE DELETE ON jobctl.claim FROM {worker}")
        owner.execute(f"REVOKE EXECUTE ON FUNCTION jobctl.ring FROM {worker}")
        assert rights.lacking(owner, Kind.WORKER, "jobctl", worker) == [right, call]
        assert grants.incomplete(owner, "jobctl") == [(worker, Kind.WORKER)]
        with psycopg.connect(server.dsn(_user(Kind.WORKER)), autocommit=True) as connection:
            delete = sql.SQL("DELETE FROM jobctl.claim WHERE false")
            assert "permission denied" in _do(connection, delete)
            assert migrate(server.owner) == []
            assert _do(connection, delete) == ""
        assert grants.incomplete(owner, "jobctl") == []


def test_a_newer_migration_makes_a_thing_anew(server: LoginServer) -> None:
    """What it makes belongs to nobody; the roles that are known get their rights on it."""
    text = (
        "-- compatible-from: 1\n\n"
        "DROP VIEW edges;\n"
        "CREATE VIEW edges AS SELECT parent, child, on_dead, met_at, created_at FROM job_edge;\n"
    )
    newer = parse(f"{len(ours()) + 1:04}_newer.sql", text)
    with psycopg.connect(server.owner, autocommit=True) as owner:
        assert len(migrate(server.owner, files=[*ours(), newer])) == 1
        assert grants.incomplete(owner, "jobctl") == []
        owner.execute("DELETE FROM jobctl.migration WHERE number = %s", [newer.number])
        owner.execute("REVOKE ALL ON jobctl.edges FROM PUBLIC")


def test_a_role_has_more_than_it_should(server: LoginServer) -> None:
    """Granting takes what is not its kind's, column rights too."""
    producer = USUAL_NAMES[Kind.PRODUCER]
    with psycopg.connect(server.owner, autocommit=True) as owner:
        owner.execute(f"GRANT SELECT (args), UPDATE ON jobctl.job TO {producer}")
        grants.grant(server.owner, [(producer, Kind.PRODUCER)])
        query = "SELECT has_any_column_privilege(%s, 'jobctl.job', 'SELECT, UPDATE')"
        assert owner.execute(query, [producer]).fetchone() == (False,)


def test_names_are_quoted(server: LoginServer) -> None:
    """A role's name is somebody's text; the printed SQL runs in psql's place too, twice."""
    awkward = 'Shop $jobctl$ "web"; --\\'
    text = grants_text([(awkward, Kind.PRODUCER)])
    with psycopg.connect(server.owner, autocommit=True) as owner:
        for _ in range(2):
            owner.execute(text.encode())
        assert (awkward, Kind.PRODUCER) in grants.grantees(owner, "jobctl")
        assert rights.lacking(owner, Kind.PRODUCER, "jobctl", awkward) == []
        with pytest.raises(SchemaError, match="is a role of kind producer, and somebody may work"):
            grants.grant(server.owner, [(awkward, Kind.READ_ONLY)])
        assert (awkward, Kind.PRODUCER) in grants.grantees(owner, "jobctl")
        owner.execute(sql.SQL("DROP OWNED BY {0}").format(sql.Identifier(awkward)))
        owner.execute(sql.SQL("DROP ROLE {0}").format(sql.Identifier(awkward)))
        assert awkward not in dict(grants.grantees(owner, "jobctl"))
        assert migrate(server.owner) == []
        owner.execute("DELETE FROM jobctl.grantee WHERE role = %s", [awkward])


def test_the_owner_is_made_less_by_mistake(server: LoginServer) -> None:
    """It could not migrate any more."""
    with psycopg.connect(server.owner, autocommit=True) as owner:
        name = owner.info.user
        with pytest.raises(SchemaError, match="owns the schema"):
            grants.grant(server.owner, [(name, Kind.PRODUCER)])
        assert name not in dict(grants.grantees(owner, "jobctl"))


def test_who_was_granted_the_tables_by_hand_goes_on(fresh_database: str) -> None:
    """A migration that takes functions from everybody must not stop those that run."""
    before = [one for one in ours() if one.number < 12]
    with psycopg.connect(fresh_database, autocommit=True) as owner:
        owner.execute('CREATE ROLE "by ""hand""" NOLOGIN')
        owner.execute("CREATE ROLE nobody_at_all NOLOGIN")
        try:
            migrate(fresh_database, files=before)
            owner.execute('GRANT USAGE ON SCHEMA jobctl TO "by ""hand"""')
            owner.execute('GRANT ALL ON ALL TABLES IN SCHEMA jobctl TO "by ""hand"""')
            migrate(fresh_database)
            owner.execute('SET ROLE "by ""hand"""')
            assert owner.execute("SELECT jobctl.enqueue('t')").fetchone() == (1,)
            owner.execute("RESET ROLE")
            asked = "SELECT has_function_privilege('nobody_at_all', 'jobctl.ring()', 'EXECUTE')"
            assert owner.execute(asked).fetchone() == (False,)
        finally:
            owner.execute("RESET ROLE")
            for role in ('"by ""hand"""', "nobody_at_all"):
                owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("make_history_partitions(100000)", "at most 400 days"),
        ("make_history_partitions(NULL)", "at most 400 days"),
        ("set_limit('b*c', 1)", "before its end"),
        ("set_limit('a')", "limits nothing"),
    ],
)
def test_doors_are_careful(owner: psycopg.Connection, call: str, why: str) -> None:
    """Whoever comes by SQL is told what is wrong, and cannot take the server's locks."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=why):
        owner.execute(f"SELECT jobctl.{call}")


def test_one_role_is_of_one_kind() -> None:
    roles = [("both", Kind.WORKER), ("both", Kind.OPERATOR)]
    with pytest.raises(ValueError, match="make a role for each"):
        grants_text(roles)


@pytest.mark.parametrize("name", ["public", "PUBLIC", "none", "Current_User", "pg_monitor"])
def test_rights_for_everybody_by_a_word(name: str) -> None:
    """`GRANT ... TO "public"` is for everybody, quoted or not: that cannot be what was meant."""
    with pytest.raises(ValueError, match=r"name the role itself|a role of your own"):
        grants_text([(name, Kind.WORKER)])


def test_who_may_not_grant_hears_who_may(server: LoginServer) -> None:
    known = [(USUAL_NAMES[Kind.PRODUCER], Kind.PRODUCER)]
    with pytest.raises(SchemaError, match="as the owner of the schema"):
        grants.grant(server.dsn(_user(Kind.OPERATOR)), known)
    with pytest.raises(SchemaError, match=r'may not make roles: .* CREATE ROLE "new" NOLOGIN'):
        grants.grant(server.dsn(_user(Kind.OPERATOR)), [("new", Kind.PRODUCER)])


def test_doors_with_the_owners_rights_are_safe(owner: psycopg.Connection) -> None:
    """A function that acts for the owner looks names up where they were when it was made, with
    temporary tables last, and is nobody's who was not given it."""
    rows = owner.execute(
        "SELECT p.proname, p.prosecdef, p.proconfig,"
        " EXISTS (SELECT FROM aclexplode(p.proacl) AS a WHERE a.grantee = 0), p.proacl IS NULL"
        " FROM pg_proc AS p WHERE p.pronamespace = 'jobctl'::regnamespace"
    ).fetchall()
    doors = {name for name, definer, *_ in rows if definer}
    assert {"enqueue_many", "cancel_many", "get", "replay_many", "drop_history_partition"} <= doors
    for name, _, config, for_everybody, for_anybody in rows:
        assert 'search_path="jobctl",pg_temp' in config, name
        assert not for_everybody, name
        assert not for_anybody, name


def test_a_producers_own_tables_stand_in_nobodys_way(server: LoginServer) -> None:
    """Temporary tables named like ours, functions and operators found first: the door does not
    look there."""
    with psycopg.connect(server.dsn(_user(Kind.PRODUCER))) as connection:
        for table in ("job", "job_key", "ready", "queue_seen", "job_type", "limit_state"):
            connection.execute(
                sql.SQL("CREATE TEMP TABLE {} (id bigint)").format(sql.Identifier(table))
            )
        connection.execute("SET search_path = pg_temp, public, jobctl")
        row = connection.execute("SELECT jobctl.enqueue('t', '{}', key => 'mine')").fetchone()
        assert row is not None
        assert connection.execute("SELECT count(*) FROM pg_temp.job").fetchone() == (0,)
        seen = connection.execute("SELECT state FROM jobctl.get(%s)", row).fetchone()
        assert seen == ("queued",)
        connection.rollback()


def test_no_door_empties_history(server: LoginServer) -> None:
    """Only a partition, only an old one, and no other table whatever its name."""
    with psycopg.connect(server.dsn(_user(Kind.WORKER)), autocommit=True) as connection:
        today = connection.execute(
            "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
        ).fetchone()
        assert today is not None
        for name in (f"history_{today[0]}", "job", "history", 'job"; --', "history_20200101"):
            asked = connection.execute("SELECT jobctl.drop_history_partition(%s)", [name])
            assert asked.fetchone() == (False,)


def test_the_definition_keeps_what_it_promises() -> None:
    """Read without any database: nobody but a worker touches claims; the audit log is only added
    to; read-only reads; who enqueues reads nothing of jobs."""
    for kind in Kind:
        for right in rights.rights(kind):
            if right.name == "claim" and right.privilege != "SELECT":
                assert kind is Kind.WORKER
            if right.name == "audit":
                assert right.privilege in ("SELECT", "INSERT")
            if kind is Kind.READ_ONLY:
                assert right.privilege in ("SELECT", "EXECUTE")
            if kind is Kind.PRODUCER:
                assert right.privilege == "EXECUTE" or right.name == "migration"
