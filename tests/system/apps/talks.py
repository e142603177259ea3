"""An app that logs, as most do, and has not set logging up."""

from __future__ import annotations

import logging
import threading

import jobctl

log = logging.getLogger("shop.mail")


@jobctl.job
def talk(ctx: jobctl.Context, secret: str) -> None:
    """Says the same thing in every way that there is."""
    print("printed", end="")  # noqa: T201 - a handler may
    ctx.log.info("from the context", extra={"invoice": 1842})
    log.warning("from a logger of %s", "its own")
    log.info("not worth it")  # below the level that Python begins with
    thread = threading.Thread(target=log.error, args=("from a thread",))
    thread.start()
    thread.join()
    log.error("connecting to postgresql://ann:hunter2@db/shop")
    try:
        raise ValueError("no paper")
    except ValueError:
        log.exception("it failed\nand goes on")
    log.error("x" * 100_000)
