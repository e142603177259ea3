"""The layers hold: store <- workerproc <- supervisor <- cli, and each module exists once."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parents[2]


def test_no_layer_imports_what_stands_above_it() -> None:
    """As import-linter sees it, indirect imports included."""
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"], cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contract_names_every_layer() -> None:
    """A folder that is in no contract may import anything."""
    settings = tomllib.loads((HERE / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    packages = {path.parent.name for path in (HERE / "src" / "jobctl").glob("*/__init__.py")}
    assert set(contract["layers"]) == {f"jobctl.{name}" for name in packages}


def test_no_module_is_there_twice() -> None:
    """`import store` from the top of the repository would make second copies of our classes."""
    copies = [
        name
        for name in sys.modules
        if name.partition(".")[0] in ("store", "supervisor", "workerproc", "src")
    ]
    assert copies == []
