"""An app that has set logging up: its handler, its format, its level."""

from __future__ import annotations

import logging
import sys

import jobctl

logging.basicConfig(
    stream=sys.stderr,
    level=logging.DEBUG,
    format="%(levelname)s job=%(job_id)s type=%(job_type)s attempt=%(attempt)s %(message)s",
)


@jobctl.job
def talk(ctx: jobctl.Context) -> None:
    ctx.log.debug("hello", extra={"invoice": 1})
    logging.getLogger("shop").info("hello again", extra={"job_id": "mine"})
