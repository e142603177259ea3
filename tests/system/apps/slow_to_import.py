"""An app that takes its time: importing it waits while the test's file `slow` is there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import jobctl

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])

(FOLDER / "importing").touch()
while (FOLDER / "slow").exists():
    time.sleep(0.01)


@jobctl.job
def hold(ctx: jobctl.Context, name: str) -> None:
    """Leaves a mark and waits for NAME.go."""
    (FOLDER / name).touch()
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)
