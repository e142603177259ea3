"""What a handler enqueues for when it succeeds: checked at the call, and dropped if it fails."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

import jobctl
from jobctl.store.errors import InvalidJob
from jobctl.store.new_job import new_job
from jobctl.workerproc.chain import linked
from jobctl.workerproc.context import Context
from jobctl.workerproc.steps import MOST_STEPS
from tests.workerproc.test_attempt import Run, page, run

__all__ = ["page", "run"]  # fixtures


def written(ctx: Context) -> list[dict[str, Any]]:
    return list(json.loads(ctx._steps.text() or "[]"))


def test_steps_travel_with_the_success(run: Run) -> None:
    """With a result and without one; a job without steps answers as ever."""

    def enqueues(ctx: Context) -> None:
        ctx.enqueue("next", {"n": 1}, key="k")

    def returns(ctx: Context) -> int:
        ctx.enqueue("next")
        return 7

    body = run(enqueues)
    assert (body["outcome"], body["result"]) == ("succeeded", None)
    assert json.loads(body["steps"]) == [{"type": "next", "args": {"n": 1}, "key": "k"}]
    body = run(returns)
    assert (body["result"], json.loads(body["steps"])) == ("7", [{"type": "next", "args": {}}])


def test_steps_of_a_failed_attempt_are_dropped(run: Run) -> None:
    """Whatever it failed of; and the next attempt has none of them."""

    def fails(ctx: Context) -> None:
        ctx.enqueue("next")
        raise ValueError("no")

    def returns_nonsense(ctx: Context) -> object:
        ctx.enqueue("next")
        return object()

    def plain(ctx: Context) -> None:
        assert ctx.steps == ()

    assert "steps" not in run(fails)
    assert run(returns_nonsense)["error_class"] == "unstorable_result"
    assert "steps" not in run(returns_nonsense)
    assert run(plain).token == 42


def test_what_is_wrong_is_said_at_the_call(run: Run) -> None:
    """In the handler, where its author sees it."""

    def wrong(ctx: Context) -> None:
        ctx.enqueue("next", {"at": object()})

    body = run(wrong)
    assert (body["outcome"], body["error_class"]) == ("failed", "UnstorableValue")


def test_steps_come_after_each_other_and_after_others() -> None:
    """To come after the job itself is what they do anyway."""
    ctx = Context(type="t", job_id=7)
    first = ctx.enqueue("a", after=[7, 3])
    ctx.enqueue("b", after=[first], on_dead="cancel")
    ctx.enqueue("c", after=[7])
    assert [(one["type"], one.get("after"), one.get("on_dead")) for one in written(ctx)] == [
        ("a", [3], "hold"), ("b", [{"item": 1}], "cancel"), ("c", None, None),
    ]  # fmt: skip
    with pytest.raises(InvalidJob, match="not in this call"):
        ctx.enqueue("d", after=[new_job("a")])
    assert len(ctx.steps) == 3


def test_there_is_a_limit_to_steps() -> None:
    """In number and in bytes, with what to do instead; what was there before stays."""
    ctx = Context(type="t")
    for _ in range(MOST_STEPS):
        ctx.enqueue("a")
    with pytest.raises(InvalidJob, match=r"1001 jobs, more than 1000: enqueue one job"):
        ctx.enqueue("a")
    assert len(ctx.steps) == MOST_STEPS
    ctx = Context(type="t")
    with pytest.raises(InvalidJob, match="bytes, more than 1048576"):
        for _ in range(100):
            ctx.enqueue("a", {"text": "x" * 50_000})
    assert len(ctx.steps) == 20


def test_threads_of_a_handler_enqueue() -> None:
    """None is lost."""
    ctx = Context(type="t")
    threads = [
        threading.Thread(target=lambda: [ctx.enqueue("a") for _ in range(100)]) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(ctx.steps) == 400


def test_a_thread_that_outlives_its_handler_is_refused(run: Run) -> None:
    """It cannot be with that success any more, and must not be with the next one's."""
    kept: list[Context] = []

    def keeps(ctx: Context) -> None:
        kept.append(ctx)

    run(keeps)
    with pytest.raises(RuntimeError, match=r"nothing was enqueued: the handler .* has returned"):
        kept[0].enqueue("late")


def test_a_declared_job_is_enqueued_on_ctx(run: Run) -> None:
    """As on a connection: checked against the function, with its type's options."""

    @jobctl.job(queue="mail")
    def send(ctx: Context, invoice: int) -> None: ...

    ctx = Context(type="t")
    item = send.enqueue(ctx, invoice=1)
    ctx.enqueue(send.item(invoice=2, after=[item]))
    assert [(one["queue"], one["args"]) for one in written(ctx)] == [
        ("mail", {"invoice": 1}), ("mail", {"invoice": 2}),
    ]  # fmt: skip
    with pytest.raises(TypeError, match="cannot be called"):
        send.enqueue(ctx, invoise=1)


def test_a_chain_links_each_to_the_one_before() -> None:
    """A list runs side by side: a fan out, and a fan in. An item's own word goes before the
    chain's."""
    a, b, c = new_job("a", after=[5]), new_job("b"), new_job("c", after=[9], on_dead="hold")
    one, two, three, four = linked([a, [b, c], new_job("d")], "cancel")
    assert (one.after, two.after, three.after, four.after) == ((5,), (one,), (9, one), (two, three))
    assert [step.on_dead for step in (one, two, three, four)] == [None, "cancel", "hold", "cancel"]
    ctx = Context(type="t")
    assert len(jobctl.chain(ctx, a, [b, c])) == 3
    assert len(written(ctx)) == 3


@pytest.mark.parametrize("step", [[], "send", 7, [None]])
def test_what_is_no_step_of_a_chain_is_refused(step: Any) -> None:
    """By its position."""
    with pytest.raises(InvalidJob, match="step 2 of the chain"):
        linked([new_job("a"), step])
