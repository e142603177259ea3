"""Where on this host a supervisor puts its control socket, and where others look for it.

The rule: the socket lives in a folder that only its user may enter. A folder that somebody else
made, or may write to, is refused: whoever can replace the socket could pose as the supervisor.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jobctl.store.errors import JobctlError


class FolderError(JobctlError):
    """The folder for the control socket cannot be used; the message says what to do."""


def runtime_folders(environ: Mapping[str, str]) -> list[Path]:
    """Every usual place for control sockets, the preferred one first."""
    folders = []
    # systemd gives a list separated by colons; the first is the unit's own.
    if of_the_unit := environ.get("RUNTIME_DIRECTORY", "").split(":")[0]:
        folders.append(Path(of_the_unit))
    if of_the_user := environ.get("XDG_RUNTIME_DIR"):
        folders.append(Path(of_the_user) / "jobctl")
    folders.append(Path("/run/jobctl"))
    folders.append(Path(tempfile.gettempdir()) / f"jobctl-run-{os.geteuid()}")
    return list(dict.fromkeys(folders))


def folders_of_units() -> list[Path]:
    """Where the instances of jobctl@.service have theirs."""
    return sorted(Path("/run").glob("jobctl-*"))


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """The first of the usual places that this user can have."""
    folders = runtime_folders(environ)
    return next((folder for folder in folders if _is_within_reach(folder)), folders[-1])


def make_private(folder: Path) -> None:
    """The folder exists afterwards, is ours, and nobody else may enter it. Raises FolderError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise FolderError(
            f"The control socket's folder {folder} cannot be made: {error.strerror}. "
            "Set runtime_dir to a folder that can be written."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise FolderError(
            f"The control socket's folder {folder} is not a folder of this user's own. "
            "Remove it, or set runtime_dir to another place."
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)


def _is_within_reach(folder: Path) -> bool:
    """Whether it is ours already, or could be made."""
    try:
        return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK | os.X_OK)
    except FileNotFoundError:
        return os.access(folder.parent, os.W_OK | os.X_OK)
    except OSError:
        return False
