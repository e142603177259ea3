"""One type at the version that the environment says."""

from __future__ import annotations

import os
from typing import Any

import jobctl

VERSION = int(os.environ["JOBCTL_TEST_VERSION"])


def upgrade(args: dict[str, Any], version: int) -> dict[str, Any]:
    if args.get("spoil"):
        raise KeyError("size")
    if version < 2 <= VERSION:
        args["width"] = args.pop("size")
    if version < 3 <= VERSION:
        args["unit"] = "px"
    return args


@jobctl.job(name="resize", schema_version=VERSION, upgrade=upgrade)
def resize(ctx: jobctl.Context, **args: Any) -> dict[str, Any]:
    return {"version": VERSION, **args}
