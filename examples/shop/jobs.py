"""The shop's jobs. Run them with: jobctl run --app shop.jobs (in the folder above)."""

from __future__ import annotations

import asyncio
import ctypes
import time
from pathlib import Path

import jobctl
from jobctl import Retry


@jobctl.job(
    queue="mail",
    timeout="30s",
    key_ttl="24h",
    owner="billing",
    link="https://admin.shop.example/{subject}",
    retry=Retry(max_attempts=5, min_backoff="2s"),
)
def send_invoice_email(ctx: jobctl.Context, invoice_id: int) -> dict[str, str]:
    """An ordinary job: it does its work and returns a small result."""
    time.sleep(0.05)  # the mail server
    print(f"invoice {invoice_id} is on its way")
    return {"message_id": f"<invoice-{invoice_id}@shop.example>"}


@jobctl.job(queue="mail", owner="growth", link="https://admin.shop.example/{subject}")
async def send_welcome(ctx: jobctl.Context, customer: str) -> None:
    """A coroutine; and for some customers it knows that no retry will help, and says so."""
    await asyncio.sleep(0.01)
    if not customer.isascii():
        raise jobctl.Permanent(f"no template for {customer}", code="TEMPLATE_MISSING")


@jobctl.job(queue="images", timeout="2s", retry=Retry(max_attempts=1))
def render_thumbnail(ctx: jobctl.Context, image: str) -> None:
    """Hangs in C code that holds the interpreter's lock: nothing inside the process can end it."""
    if image == "broken.tiff":
        ctypes.PyDLL(None).sleep(600)


@jobctl.job(queue="reports", timeout="60s", retry=Retry(max_attempts=3, min_backoff="1s"))
def build_report(ctx: jobctl.Context, started: str, wait: bool = False) -> None:
    """Says that it runs; the first time it then waits for something long."""
    path = Path(started)
    first = not path.exists()
    with path.open("a") as file:
        file.write(f"{ctx.attempt}\n")
    if wait and first:
        time.sleep(600)


@jobctl.cron("0 3 * * *", tz="Asia/Ho_Chi_Minh", misfire="once", overlap="skip")
@jobctl.job(queue="reports", owner="warehouse")
def count_stock(ctx: jobctl.Context, shelf: str = "all") -> dict[str, str]:
    """Every night, and whenever somebody asks for it."""
    return {"shelf": shelf}
