"""An app that starts a program of its own when it is imported, and forgets it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jobctl

helper = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
(Path(os.environ["JOBCTL_TEST_FOLDER"]) / "helper").write_text(str(helper.pid))


@jobctl.job
def nothing(ctx: jobctl.Context) -> None: ...
