"""The health of PostgreSQL as jobctl needs it: settings, clean tables, nobody in the way of vacuum.

Queues on PostgreSQL die of dead rows: whatever keeps vacuum from taking them away is found here,
by name, with the command that ends it. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobctl.store.finding import Finding, finding
from jobctl.store.reading import Connection, Row
from jobctl.store.spoken import coarse
from jobctl.store.statements import sql

#: A transaction that is open for longer keeps dead rows of busy tables from being cleaned away; one
#: in which nothing happens is forgotten.
LONG_TRANSACTION = 3600.0
LONG_IDLE = 300.0
#: More dead rows than these, and more than live ones: vacuum does not follow.
MANY_DEAD = 50_000
#: A snapshot that is so many transactions old is in the way.
FAR_BEHIND = 1_000_000
#: Of the clients that the server takes, this share is much.
MUCH = 0.8

HOT_TABLES = ("claim", "job", "ready", "scheduled", "session")
#: Settings, what each must be, and what happens else.
_MUST: Mapping[str, tuple[str, str]] = {
    "autovacuum": ("on", "the tables of a queue live from being vacuumed: switch it on"),
    "track_counts": ("on", "autovacuum rests on it: switch it on"),
    "fsync": ("on", "a crash of the machine would leave no database: switch it on"),
    "full_page_writes": ("on", "a crash of the machine could tear pages: switch it on"),
    "default_transaction_isolation": (
        "read committed", "claims of several hosts would fail with serialization errors: set it "
        "for reporting users only (ALTER ROLE ... SET)",
    ),
}  # fmt: skip
#: Worth a thought.
_SHOULD: Mapping[str, tuple[str, str]] = {
    "synchronous_commit": (
        "on", "a job whose enqueue was committed can be lost if the server crashes: leave it on "
        "for those who enqueue (jobctl switches it off itself where nothing can be lost)",
    ),
}  # fmt: skip
_ASKED = (*_MUST, *_SHOULD, "idle_session_timeout", "idle_in_transaction_session_timeout")


def examine(connection: Connection) -> list[Finding]:
    """Everything that is looked at, fine or not. Raises what psycopg raises."""
    (server,) = connection.execute(sql("read_server"), {"names": list(_ASKED)}).fetchall()
    tables = connection.execute(sql("read_hot_tables"), {"names": list(HOT_TABLES)}).fetchall()
    holders = connection.execute(sql("read_holders"), {}).fetchall()
    return [
        *_settings(server),
        _clients(server),
        *_tables(tables),
        *_holders(holders),
    ]


def pooler(connection: Connection) -> Finding:
    """Whether somebody stands between us and PostgreSQL. If so, nothing else can be asked: what
    one statement sets is not there for the next."""
    (server,) = connection.execute(sql("read_server"), {"names": []}).fetchall()
    direct = server["backend_pid"] == connection.info.backend_pid
    return finding(
        "pooler",
        direct,
        "the connection is PostgreSQL's own"
        if direct
        else f"told process {connection.info.backend_pid}, answered by {server['backend_pid']}: "
        "a connection pooler stands between",
        "supervisors and this command need the DSN of PostgreSQL itself; applications may enqueue "
        "through the pooler",
    )


def _settings(server: Row) -> list[Finding]:
    told = server["settings"] or {}
    wrong = {name: want for name, want in _MUST.items() if told.get(name) != want[0]}
    odd = {name: want for name, want in _SHOULD.items() if told.get(name) == "off"}
    found = [
        finding("settings", False, f"{name} is {told.get(name)}", want[1], note=name in odd)
        for name, want in {**wrong, **odd}.items()
    ]
    idle = told.get("idle_session_timeout", "0")  # in ms; PostgreSQL 14 and newer have it
    if idle != "0":
        fact = f"idle_session_timeout is {coarse(float(idle) / 1000)}"
        advice = (
            "it cuts supervisors off that have nothing to do: ALTER ROLE ... SET "
            "idle_session_timeout = 0 for their user"
        )
        found.append(finding("settings", False, fact, advice, note=True))
    if told.get("idle_in_transaction_session_timeout", "0") == "0":
        advice = (
            "an application that forgets a transaction keeps every dead row in place: set it to "
            "some minutes"
        )
        fact = "idle_in_transaction_session_timeout is off"
        found.append(finding("settings", False, fact, advice, note=True))
    version = f"PostgreSQL {server['version'] // 10_000}.{server['version'] % 10_000}"
    if not wrong and not odd:
        found.insert(0, finding("settings", True, f"{version}, and set as jobctl needs it", ""))
    return found


def _clients(server: Row) -> Finding:
    clients, most = server["clients"], server["most_clients"]
    return finding(
        "connections",
        clients < MUCH * most,
        f"{clients} of {most} connections are taken",
        "a host that cannot connect loses its lease and its jobs: raise max_connections, or put a "
        "pooler before those who enqueue",
    )


def _tables(tables: list[Row]) -> list[Finding]:
    found = []
    for table in tables:
        if table["never_vacuumed"]:
            advice = f"ALTER TABLE {table['name']} RESET (autovacuum_enabled)"
            fact = f"autovacuum is switched off for {table['name']}"
            found.append(finding("vacuum", False, fact, advice))
        if table["dead"] > max(MANY_DEAD, table["live"]):
            since = table["vacuumed_at"]
            last = f"vacuumed last {since:%Y-%m-%d %H:%M} UTC" if since else "never vacuumed"
            fact = f"{table['name']} has {table['dead']} dead rows beside {table['live']}, {last}"
            advice = (
                "see below who holds an old snapshot and end it, then VACUUM it; if nobody does, "
                "autovacuum is too slow: raise autovacuum_max_workers or its cost limit"
            )
            found.append(finding("vacuum", False, fact, advice))
    if not found:
        megabytes = sum(table["bytes"] for table in tables) / 2**20
        fact = f"the tables that change with every job are clean, {megabytes:.0f} MiB in all"
        found.append(finding("vacuum", True, fact, ""))
    return found


def _holders(holders: list[Row]) -> list[Finding]:
    found = []
    for holder in holders:
        name, seconds, behind = holder["name"], holder["seconds"] or 0.0, holder["behind"] or 0
        who = f"{holder['kind']} {name} ({holder['who']})" if holder["who"] else str(holder["kind"])
        for_long = f"is open for {coarse(seconds)}"
        match holder["kind"]:
            case "transaction" if seconds > LONG_TRANSACTION:
                advice = f"while it is open no dead row goes: SELECT pg_terminate_backend({name})"
                found.append(finding("transactions", False, f"{who} {for_long}", advice))
            case "idle in transaction" if seconds > LONG_IDLE:
                advice = (
                    f"somebody forgot to commit: SELECT pg_terminate_backend({name}), mend the "
                    "program, and set idle_in_transaction_session_timeout"
                )
                fact = f"{who} has done nothing for {coarse(seconds)}"
                found.append(finding("transactions", False, fact, advice))
            case "prepared transaction" if seconds > LONG_IDLE:
                quoted = str(name).replace("'", "''")
                advice = f"whoever prepared it must end it, or: ROLLBACK PREPARED '{quoted}'"
                found.append(finding("transactions", False, f"{who} {for_long}", advice))
            case "replication slot" if not holder["active"]:
                quoted = str(name).replace("'", "''")
                advice = (
                    "it keeps WAL until the disk is full, and dead rows too: start its reader, or "
                    f"SELECT pg_drop_replication_slot('{quoted}')"
                )
                fact = f"the replication slot {name} has no reader"
                found.append(finding("replication", False, fact, advice))
            case "replication slot" | "standby" if behind > FAR_BEHIND:
                advice = "a long query on it (hot_standby_feedback) or a slow reader: end that"
                fact = f"{who} reads as of {behind} transactions ago"
                found.append(finding("replication", False, fact, advice, note=True))
    if not any(one.about == "transactions" for one in found):
        oldest = max((one["seconds"] or 0.0 for one in holders), default=0.0)
        fact = f"the oldest open transaction is {coarse(oldest)} old"
        found.insert(0, finding("transactions", True, fact, ""))
    if not any(one.about == "replication" for one in found):
        found.append(finding("replication", True, "nothing of it holds on to old rows", ""))
    return found
