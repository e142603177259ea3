"""How things stand, in one look: what `status` and `top` show.

Age comes before depth: a long queue that moves is no trouble, a short one that stands is. What is
wrong is a list of its own, the worst first, each with the command that helps or tells more.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobctl.cli import queues
from jobctl.cli.moments import coarse, iso, since
from jobctl.store import reading
from jobctl.store.reading import Connection, JobFilter, Row
from jobctl.store.states import State

#: Deaths within the last hour are counted up to this.
MOST_DEAD = 10_000
#: A cron that is due for longer and has not fired is late.
LATE_SECONDS = 60.0
#: Who has waited for longer waits for long, and for too long.
LONG_SECONDS, TOO_LONG_SECONDS = 60.0, 600.0
_HOUR = 3600.0


def facts(connection: Connection) -> dict[str, Any]:
    """Everything, as `jobctl status --json` prints it. Raises what psycopg raises."""
    now = reading.clock(connection)
    hosts = [row for row in reading.hosts(connection) if row["state"] != "dead"]
    live = [row for row in hosts if row["state"] != "silent"]
    lately = JobFilter(state=State.DEAD, since=reading.ago(connection, _HOUR))
    told = {
        "at": iso(now),
        "queues": queues.facts(connection),
        "supervisors": len(live),
        "slots": sum(row["slots"] for row in live),
        "busy": sum(row["busy"] for row in live),
        "draining": [row["host"] for row in live if row["state"] in ("draining", "drained")],
        "not_ready": [row["host"] for row in hosts if row["state"] == "not ready"],
        "silent": [row["host"] for row in hosts if row["state"] == "silent"],
        "leader": next((row["host"] for row in live if row["leader"]), None),
        "stuck": reading.stuck(connection),
        "progress": reading.progress(connection),
        "unrunnable": reading.unrunnable(connection),
        "died_last_hour": len(reading.ids(connection, lately, MOST_DEAD)),
        "late_crons": [
            {"name": row["name"], "seconds": row["overdue_seconds"]}
            for row in reading.crons(connection)
            if (row["overdue_seconds"] or 0) > LATE_SECONDS
        ],
    }
    told["troubles"] = [
        {"severity": severity, "trouble": trouble, "advice": advice}
        for severity, trouble, advice in _troubles(told, now)
    ]
    return told


def headline(told: Row) -> str:
    """Who works."""
    if not told["supervisors"]:
        return "No supervisor is running: nothing is worked on. Start one: jobctl run --app MODULE"
    many = told["supervisors"]
    return (
        f"{many} supervisor{'' if many == 1 else 's'}, {told['busy']} of {told['slots']} "
        f"slots busy, leader: {told['leader'] or 'none yet'}"
    )


def troubles(told: Row) -> list[Row]:
    """What is wrong, without what the headline says already."""
    shown: list[Row] = told["troubles"]
    return shown if told["supervisors"] else shown[1:]


def age_colour(queue: Row) -> str | None:
    """How an age looks; a paused queue's is nobody's fault."""
    age = queue["age_seconds"] or 0.0
    if queue["paused_at"] is not None or age < LONG_SECONDS:
        return None
    return "red" if age >= TOO_LONG_SECONDS else "yellow"


_Trouble = tuple[str, str, str]


def _troubles(told: dict[str, Any], now: datetime) -> list[_Trouble]:
    """(severity, what, what to do), the worst first. Severities: critical, warning, note."""
    found: list[_Trouble] = []
    if not told["supervisors"]:  # the first of all: `troubles` rests on it
        found.append(("critical", "no supervisor is running", "start one: jobctl run --app MODULE"))
    elif told["leader"] is None:
        found.append(
            ("warning", "nobody leads: crons do not fire, nothing lost is taken back",
             "one should within half a minute; else jobctl doctor")
        )  # fmt: skip
    if told["silent"]:
        names = ", ".join(told["silent"])
        found.append(("warning", f"silent: {names}", "see to the host; others take its jobs"))
    if told["not_ready"]:
        names = ", ".join(told["not_ready"])
        found.append(("warning", f"not ready: {names}", "its log says why the app is not loaded"))
    if told["stuck"]:
        many = len(told["stuck"])
        found.append(
            ("critical", f"{_of(many, 'running job')} looked after by nobody",
             "the leader takes them back; else jobctl doctor")
        )  # fmt: skip
    for row in told["unrunnable"]:
        what = f"{_of(row['jobs'], 'job')} of {row['type']}@{row['schema_version']}"
        found.append(
            ("critical", f"{what} in {row['queue']} that nobody can run: {row['because']}",
             "deploy code that has it")
        )  # fmt: skip
    for queue in told["queues"]:
        found += _of_queue(queue, now)
    for cron in told["late_crons"]:
        what = f"the cron {cron['name']} is {coarse(cron['seconds'])} late"
        found.append(("warning", what, "the leader fires it: jobctl hosts, jobctl cron list"))
    if many := told["died_last_hour"]:
        what = f"{_of(many, 'job')} died within the last hour"
        found.append(("warning", what, "jobctl dead list --since 1h"))
    if told["draining"]:
        names = ", ".join(told["draining"])
        found.append(("note", f"draining: {names}", "jobctl undrain, if that was not meant"))
    order = ("critical", "warning", "note")
    return sorted(found, key=lambda one: order.index(one[0]))


def _of_queue(queue: Row, now: datetime) -> list[_Trouble]:
    name, waits = queue["queue"], queue["queued"]
    if queue["paused_at"] is not None:
        why = f": {queue['paused_reason']}" if queue["paused_reason"] else ""
        what = (
            f"{name} is paused for {since(now, queue['paused_at'])} by "
            f"{queue['paused_by'] or 'somebody'}{why}"
        )
        return [("note", what, f"jobctl queues resume {name}")]
    if queue["state"] == "unserved" and waits:
        return [("critical", f"{name} is served by no host", "add it to a host's queues")]
    colour = age_colour(queue)
    if colour is None:
        return []
    what = f"the oldest due job of {name} has waited {coarse(queue['age_seconds'])}"
    severity = "critical" if colour == "red" else "warning"
    return [(severity, what, f"jobctl jobs list --queue {name} --state running")]


def _of(many: int, what: str) -> str:
    return f"{many} {what}" + ("" if many == 1 else "s")
