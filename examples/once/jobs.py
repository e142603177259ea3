"""Two stories about doing something to the world once.

A thumbnail and its mail: the thumbnail may be made again, the same in the same place; the mail had
better be sent twice than never. A charge that timed out: it must never be made twice, and the bank
can be asked. Each is safe to be killed anywhere.
"""

from __future__ import annotations

import jobctl
from jobctl import Retry

from .world import bank, gallery, mail

PATIENT = Retry(max_attempts=10, max_crashes=10, min_backoff="100ms", max_backoff="2s")


@jobctl.job(queue="images", timeout="60s", retry=PATIENT)
def thumbnail_and_mail(ctx: jobctl.Context, image: str, to: str) -> dict[str, str]:
    """Killed between sending and saying so, it sends once more: never forgotten, perhaps twice."""
    ctx.progress("rendering", done=0, total=2)
    place = gallery.render(image)
    ctx.progress("sending", done=1, total=2)
    with ctx.effect(f"thumbnail-mail:{image}", mode="act_first") as effect:
        if effect.todo:
            effect.done(mail.send(to, f"your thumbnail is in {place}", message_id=effect.key))
    ctx.progress("sent", done=2, total=2)
    return {"place": place, "message": effect.value}


@jobctl.job(queue="payments", timeout="60s", retry=PATIENT)
def charge_order(ctx: jobctl.Context, order: int, cents: int) -> None:
    """Charged once, whatever dies; booked in the same commit in which the job succeeds."""

    def ask_the_bank(effect: jobctl.Effect) -> None:
        receipt = bank.find(effect.key)
        if receipt is not None:
            effect.done(receipt)
        else:
            effect.not_done()  # the bank is sure, so this attempt may

    with ctx.effect(f"charge:{order}", reconcile=ask_the_bank) as effect:
        if effect.todo:
            receipt = bank.charge(cents, idempotency_key=effect.key, timeout=ctx.remaining() / 2)
            effect.done(receipt)
    with ctx.transaction() as conn:
        conn.execute(
            "INSERT INTO booking (order_id, receipt) VALUES (%s, %s)", (order, effect.value)
        )
        ctx.result = {"receipt": effect.value}
