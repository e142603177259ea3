"""Where the control socket lives: a folder that nobody else can enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jobctl.supervisor.folders import FolderError, make_private, runtime_folder, runtime_folders


def test_the_usual_places_in_their_order(tmp_path: Path) -> None:
    """systemd's folder of the unit, the user's, the system's, one of our own."""
    environ = {"RUNTIME_DIRECTORY": f"{tmp_path}/unit:/run/other", "XDG_RUNTIME_DIR": "/run/user/7"}
    unit, user, system, own = runtime_folders(environ)
    assert (unit, user, system) == (
        tmp_path / "unit",
        Path("/run/user/7/jobctl"),
        Path("/run/jobctl"),
    )
    assert str(os.geteuid()) in own.name
    assert runtime_folder(environ) == unit


def test_a_place_that_cannot_be_had_is_passed_over(tmp_path: Path) -> None:
    """XDG_RUNTIME_DIR of a user who has logged out names a folder that is gone."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "gone" / "deeper")}
    assert runtime_folder(environ) in runtime_folders(environ)[1:]


def test_a_folder_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    """0700, also if it was there and open to all."""
    folder = tmp_path / "new" / "run"
    old = os.umask(0)
    try:
        make_private(folder)
        folder.chmod(0o777)
        make_private(folder)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    """Somebody else may have put it there."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(FolderError, match="runtime_dir"):
            make_private(tmp_path / name)
