"""Why a job does not run: one cause, in one sentence, and what to do about it.

The causes are asked in the order in which they would stop the job, and the first that holds is the
answer: whoever resumes a queue that nobody serves should hear of the second when the first is gone.
Everything is read in one moment of the database. Nothing is changed, and nothing is guessed: what a
host may do is what its session's row says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from jobctl.store import standing
from jobctl.store.causes import Answer, Cause, are, error_of, many, names, when
from jobctl.store.holdups import of_limit, of_parents
from jobctl.store.reading import Connection, Row
from jobctl.store.spoken import coarse
from jobctl.store.standing import Standing
from jobctl.store.states import State

#: Free slots, nothing ahead, and still not claimed after this: something is wrong.
LONG_NEXT = 30.0


@dataclass(frozen=True)
class Explanation:
    """The answer. `also`: what would hold the job up next, once this cause is gone."""

    job: int
    type: str
    state: str
    cause: Cause
    because: str
    advice: str
    also: str | None = None


def explain(connection: Connection, job_id: int) -> Explanation | None:
    """Why this job does not run; None if there is no such job. Raises what psycopg raises."""
    facts = standing.read(connection, job_id)
    if facts is None:
        return None
    job = facts.job
    cause, because, advice = _of_state(facts)
    also = None
    if job["state"] in (State.SCHEDULED, State.RETRYING, State.BLOCKED):
        later = _of_hosts(facts)
        also = later and later[1]
    return Explanation(job_id, job["type"], job["state"], cause, because, advice, also)


def _of_state(facts: Standing) -> Answer:
    job = facts.job
    match job["state"]:
        case State.SCHEDULED:
            return _later(facts, Cause.SCHEDULED, "its time comes")
        case State.RETRYING:
            error = error_of(job)
            tried = f"attempt {job['attempt']} of {job['max_attempts']} failed ({error}) and"
            return _later(facts, Cause.RETRYING, f"{tried} the next one comes")
        case State.BLOCKED if facts.place["limit_key"]:
            return of_limit(facts, facts.place["limit_key"])
        case State.BLOCKED if job["waits_for"]:
            return of_parents(facts)
        case State.BLOCKED:
            return (
                Cause.BLOCKED,
                f"it waits for {facts.place['blocked_reason']} since "
                f"{when(facts, facts.place['blocked_at'])}",
                "see what it waits for; when that is over it is queued by itself",
            )
        case State.QUEUED:
            return _of_hosts(facts) or _of_turn(facts)
        case State.RUNNING:
            return _of_run(facts)
        case State.DEAD:
            tried = f"attempt {job['attempt']} of {job['max_attempts']} was its last"
            if not job["attempt"]:  # acknowledged early: it has begun, and never begins again
                tried = "it came to the end of no attempt"
            return (
                Cause.DEAD,
                f"{tried} ({error_of(job)}), and it is dead since {when(facts, job['dead_since'])}",
                f"mend the cause, then jobctl dead replay {job['id']}; its attempts: "
                f"jobctl jobs show {job['id']}",
            )
        case "misplaced":
            return (
                Cause.MISPLACED,
                "it is open and stands in no place: a bug, or rows were changed by hand",
                "jobctl doctor, and report it",
            )
        case _:
            ended = when(facts, job["finished_at"])
            return (Cause.FINISHED, f"it has {_ENDED[job['state']]} {ended}", "nothing")


_ENDED = {
    State.SUCCEEDED: "succeeded", State.CANCELLED: "been cancelled",
    State.DISCARDED: "been discarded",
}  # fmt: skip


def _later(facts: Standing, cause: Cause, what: str) -> Answer:
    job = facts.job
    if job["run_at"] <= facts.now:
        return (
            cause,
            f"{what} now: it was due {when(facts, job['run_at'])} and is about to be queued",
            "ask again in a moment; if it stays so, no supervisor works: jobctl hosts",
        )
    return (
        cause,
        f"{what} {when(facts, job['run_at'])}",
        f"wait, or run it now: jobctl jobs retry {job['id']}",
    )


def _of_hosts(facts: Standing) -> Answer | None:
    """What keeps every host from taking it."""
    job, queue, type_ = facts.job, facts.job["queue"], facts.job["type"]
    if job["cancel_requested_at"] is not None:
        return (
            Cause.CANCEL_REQUESTED,
            f"it was cancelled {when(facts, job['cancel_requested_at'])}; its type's on_cancel "
            "hook is all that is left to run, and waits for a slot",
            "nothing: then it is cancelled. If it stays, see jobctl status",
        )
    if facts.pause is not None:
        why = f": {facts.pause.reason}" if facts.pause.reason else ""
        return (
            Cause.QUEUE_PAUSED,
            f"the queue {queue} was paused by {facts.pause.by or 'somebody'} "
            f"{when(facts, facts.pause.since)}{why}",
            f"jobctl queues resume {queue}",
        )
    if not facts.hosts:
        silent = f"; {names(facts.silent)} went silent" if facts.silent else ""
        return (
            Cause.NO_HOST,
            f"no supervisor is running{silent}",
            "start one: jobctl run --app MODULE",
        )
    serving = facts.serving()
    if not serving:
        others = "; ".join(
            f"{row['host']} serves {', '.join(row['queues'])}" for row in facts.hosts
        )
        return (
            Cause.QUEUE_UNSERVED,
            f"no host serves the queue {queue} ({others})",
            f"add {queue} to the setting queues of a host",
        )
    knowing = [row for row in serving if type_ in row["types"]]
    if not knowing and (loading := [row for row in serving if row["state"] == "not ready"]):
        return _not_ready(loading)
    if not knowing:
        return (
            Cause.TYPE_UNKNOWN,
            f"no host that serves the queue {queue} has code for the type {type_}",
            "deploy code that has it, or see whether the name is misspelt",
        )
    version, known = job["schema_version"], facts.place.get("known_version")
    if known is not None and version > known:
        return (
            Cause.VERSION_UNKNOWN,
            f"its arguments are of version {version}, and the newest code knows {type_} up to "
            f"version {known}",
            "deploy the code that enqueued it",
        )
    able = [row for row in knowing if row["state"] == "working"]
    if not able and all(row["state"] == "not ready" for row in knowing):
        return _not_ready(knowing)
    if not able:
        return (
            Cause.HOSTS_DRAINING,
            f"all hosts that could run it drain: {names(knowing)}",
            "jobctl undrain --all, or wait for the deploy to end",
        )
    return None


def _not_ready(hosts: list[Row]) -> Answer:
    return (
        Cause.HOSTS_NOT_READY,
        f"the hosts that could run it have no slot that is ready: {names(hosts)}",
        "their logs say why: the app cannot be imported, or takes long",
    )


def _of_turn(facts: Standing) -> Answer:
    """Somebody can run it: what is before it?"""
    job = facts.job
    able = [
        row for row in facts.serving() if row["state"] == "working" and job["type"] in row["types"]
    ]
    sessions = {row["session"] for row in able}
    held: Counter[str] = Counter()
    for row in facts.busy:
        if row["session"] in sessions:
            held[row["type"]] += row["jobs"]
    slots = sum(row["slots"] for row in able)
    before = _before(facts)
    if held.total() >= slots:
        what = ", ".join(f"{type_} ({jobs})" for type_, jobs in held.most_common(3))
        return (
            Cause.SLOTS_BUSY,
            f"all {slots} slots that could run it are busy with {what}{before and '; ' + before}",
            "more slots or hosts, or see which jobs are slow: jobctl jobs list --state running",
        )
    if before:
        return Cause.WAITS_ITS_TURN, before, "wait, or give more slots to its queue"
    waited = (facts.now - job["run_at"]).total_seconds()
    if waited > LONG_NEXT:
        return (
            Cause.NEXT,
            f"slots are free and nothing is before it, and it has waited for {coarse(waited)}",
            "that should not be: jobctl doctor, and the logs of the hosts",
        )
    return Cause.NEXT, "it is the next in its queue", "ask again in a moment"


def _before(facts: Standing) -> str:
    ahead, above = facts.place["ahead"], facts.place["above"]
    words = []
    if ahead:
        words.append(f"{many(ahead)} of its priority {are(ahead)} before it")
    if above:
        words.append(f"{many(above)} of higher priority")
    return f"{' and '.join(words)} in the queue {facts.job['queue']}" if words else ""


def _of_run(facts: Standing) -> Answer:
    job, claim = facts.job, facts.place
    host = claim.get("host") or "a host that is gone"
    if job["stuck"]:
        return (
            Cause.STUCK,
            f"it was claimed by {host} {when(facts, claim['claimed_at'])}, and "
            f"{job['stuck_because']}",
            "the leader gives it to others within moments; if not: jobctl doctor",
        )
    if job["cancel_requested_at"] is not None:
        return (
            Cause.CANCEL_REQUESTED,
            f"it runs on {job['locked_by']}, and was asked to stop "
            f"{when(facts, job['cancel_requested_at'])}",
            "its handler stops at its next safe point, or is killed at its deadline "
            f"{when(facts, claim['deadline_at'])}",
        )
    silent = (facts.now - claim["renewed_at"]).total_seconds()
    lease = (claim["expires_at"] - claim["renewed_at"]).total_seconds()
    if silent > lease / 2:
        return (
            Cause.HOST_SILENT,
            f"it was claimed by {host}, which has not been heard of for {coarse(silent)}",
            f"its lease ends {when(facts, claim['expires_at'])}; then others run the job, within "
            "seconds, or a lease later if their leader has only just begun. See to the host",
        )
    begun = claim["started_at"] or claim["claimed_at"]
    return (
        Cause.RUNNING,
        f"it runs on {job['locked_by']} since {when(facts, begun)}",
        f"wait: it is killed at the latest {when(facts, claim['deadline_at'])}",
    )
