"""Jobs for the rehearsal: ordinary ones, and one of each kind of trouble."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import time

import jobctl
from jobctl import Retry

SOON = Retry(max_attempts=4, min_backoff="300ms", max_backoff="2s")


@jobctl.job(queue="mail", retry=SOON, owner="billing")
def send_invoice_email(ctx: jobctl.Context) -> None:
    """Now and then the mail server says no."""
    time.sleep(random.uniform(0.02, 0.12))
    if random.random() < 0.06:
        raise ConnectionError("the mail server refuses")


@jobctl.job(queue="images", priority=1)
def resize_image(ctx: jobctl.Context) -> None:
    time.sleep(random.lognormvariate(-2.0, 0.6))


@jobctl.job(queue="payments", retry=SOON, owner="billing", limit="bank")
def charge_card(ctx: jobctl.Context) -> None:
    with ctx.effect(f"charge:{ctx.job_id}") as effect:
        if effect.todo:
            time.sleep(0.05)  # the bank
    if random.random() < 0.1:
        raise jobctl.Snooze("1s")


@jobctl.job(queue="payments", owner="billing")
def refund(ctx: jobctl.Context) -> None:
    raise jobctl.Permanent("the account is closed", code="ACCOUNT_CLOSED")


@jobctl.job(queue="reports", timeout="1s", retry=Retry(max_attempts=1))
def render_thumbnail(ctx: jobctl.Context) -> None:
    """Hangs in C and holds the lock of the interpreter."""
    ctypes.PyDLL(None).sleep(600)


@jobctl.job(queue="reports", timeout="20s", soft_timeout="500ms", retry=Retry(max_attempts=1))
def sync_partner(ctx: jobctl.Context) -> None:
    time.sleep(600)


@jobctl.job(
    queue="reports",
    retry=Retry(max_attempts=9, max_crashes=3, min_backoff="100ms", max_backoff="200ms"),
    owner="media",
)
def transcode(ctx: jobctl.Context) -> None:
    """Poison."""
    os.kill(os.getpid(), signal.SIGSEGV)


@jobctl.job(queue="reports", timeout="5m")
def build_report(ctx: jobctl.Context, seconds: float) -> None:
    time.sleep(seconds)


@jobctl.job(queue="mail")
def ask_to_be_cancelled(ctx: jobctl.Context) -> None:
    raise jobctl.Cancelled


@jobctl.job(queue="reports", timeout="5m")
def move_customers(ctx: jobctl.Context) -> None:
    """Ends at a safe point once somebody cancels it."""
    while True:
        ctx.check()
        time.sleep(0.1)


@jobctl.cron("* * * * * *", misfire="skip", overlap="skip")
@jobctl.job(queue="reports")
def count_stock(ctx: jobctl.Context) -> None:
    time.sleep(0.01)
