"""An app whose bank refuses cards until it is back, and whose letters lack a template."""

from __future__ import annotations

import os
from pathlib import Path

import jobctl
from jobctl import Backoff, Retry


def pay(card: int) -> None:
    if not (Path(os.environ["JOBCTL_TEST_FOLDER"]) / "bank-is-back").exists():
        raise ConnectionError(
            f"bank.example:{40_000 + card} refused card 'c-{card}' after {card}.5 s"
        )


@jobctl.job(
    retry=Retry(
        max_attempts=3,
        min_backoff="1h",
        per_class={ConnectionError: Backoff(min="100ms", max="100ms", max_attempts=2)},
    ),
    link="https://admin.example/cards/{args[card]}",
)
def charge(ctx: jobctl.Context, card: int) -> int:
    pay(card)
    return card


@jobctl.job(owner="growth")
def welcome(ctx: jobctl.Context, customer: str) -> None:
    if not customer.isascii():
        raise jobctl.Permanent(f"no template for {customer}", code="TEMPLATE_MISSING")


@jobctl.job(retry=Retry(max_attempts=2, min_backoff="1h"))
def poll(ctx: jobctl.Context, said: str | int) -> None:
    raise jobctl.RetryAfter(said, sent="Sun, 06 Nov 1994 08:49:37 GMT")
