"""`ctx.publish()`: results in files, of which nobody ever sees half.

Each attempt writes a folder of its own, named for its token; when it is whole and on the disk, one
pointer, the symbolic link `current`, is moved to it. A second run therefore replaces nothing
half-way, and whoever reads through the pointer reads one version from end to end. The pointer is
moved while the claim is locked: an attempt that is not the job's any more moves nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from jobctl.workerproc import script
from jobctl.workerproc.errors import LostClaim
from jobctl.workerproc.script import Ask, Script

if TYPE_CHECKING:
    from jobctl.workerproc.context import Context

#: The pointer.
CURRENT: Final = "current"
#: Versions in the making, which no reader should look at.
MAKING: Final = ".making-"
#: What a version is called: the job, and the token of its attempt. Nothing else is ever removed.
_VERSION: Final = re.compile(r"(\d+)-[0-9a-f]+-\d+")


def published(folder: str | os.PathLike[str]) -> Path | None:
    """The version that counts now, as a path that stays the same while it is read; None when
    nothing has been published there yet."""
    pointer = Path(folder) / CURRENT
    try:
        return pointer.parent / pointer.readlink()
    except FileNotFoundError:
        return None


class Publication:
    """Entered by `with` or `async with`. Write below `path`; `version` is its name afterwards.

    `keep`: how many versions before the new one are left for those who still read them.
    """

    def __init__(self, context: Context, folder: str | os.PathLike[str], keep: int) -> None:
        if keep < 0:
            raise ValueError(f"ctx.publish: keep must be 0 or more, not {keep}")
        self.folder: Final = Path(folder)
        # Called by a test, for no job, it has no token to be known by.
        attempt = context.token if context.job_id else f"{uuid4().hex}-0"
        self.version: Final = f"{context.job_id}-{attempt}"
        self.path: Final = self.folder / f"{MAKING}{self.version}"
        self._context = context
        self._keep = keep

    def __enter__(self) -> Publication:
        """An empty folder. Raises OSError, and RuntimeError for a second one of one attempt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / self.version).exists():
            raise RuntimeError(
                f"this attempt has published in {self.folder} already: write what belongs together "
                "in one ctx.publish(), or give each its own folder"
            )
        if self._context.job_id:
            self._sweep_own()
        self.path.mkdir()
        return self

    def __exit__(self, *raised: object) -> None:
        """Publishes, unless something was raised: then nothing of it stays.

        Raises LostClaim when another attempt counts now, and OSError; the pointer stays then.
        """
        if raised[0] is not None:
            self._discard()
            return
        with self._whole():
            if not self._context.job_id:  # run by a test, for no job: nobody else can be writing
                self._point()
                return
            connections, context = self._context._connections, self._context
            connection = connections.borrow(context.type, context.deadline)
            try:
                with connection.transaction():
                    script.run(connection, self._point_while_it_is_ours())
            finally:
                connections.give_back(connection)

    async def __aenter__(self) -> Publication:
        """`__enter__`, for coroutines."""
        return self.__enter__()

    async def __aexit__(self, *raised: object) -> None:
        """`__exit__`, for coroutines. Files are written out while the event loop waits."""
        if raised[0] is not None or not self._context.job_id:
            self.__exit__(*raised)
            return
        with self._whole():
            connections, context = self._context._connections, self._context
            connection = await connections.aborrow(context.type, context.deadline)
            try:
                async with connection.transaction():
                    await script.arun(connection, self._point_while_it_is_ours())
            finally:
                connections.give_back(connection)

    def _point_while_it_is_ours(self) -> Script[None]:
        context = self._context
        claim: dict[str, Any] = {
            "job": context.job_id, "session": context.token.session, "token": context.token.counter,
        }  # fmt: skip
        mine = yield Ask("lock_claim", claim, context._connections.schema)
        if not mine:
            raise LostClaim(
                f"the claim of job #{context.job_id} is not this attempt's any more: another has, "
                f"or may have, begun. {self.folder / CURRENT} was not moved"
            )
        self._point()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """On the disk and under its name within the block, which moves the pointer or fails."""
        self._make_whole()
        try:
            yield
        except BaseException:
            if published(self.folder) != self.folder / self.version:
                shutil.rmtree(self.folder / self.version, ignore_errors=True)
            raise
        self._sweep_old()

    def _make_whole(self) -> None:
        """On the disk, from the leaves up, and under its name."""
        for folder, _, files in os.walk(self.path, topdown=False):
            for name in files:
                _flush(Path(folder, name))
            _flush(Path(folder))
        self.path.rename(self.folder / self.version)
        _flush(self.folder)

    def _point(self) -> None:
        beside = self.folder / f".{CURRENT}-{self.version}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(self.version)
        beside.replace(self.folder / CURRENT)
        _flush(self.folder)

    def _discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _sweep_own(self) -> None:
        """What earlier attempts of this job have left: they can publish nothing any more."""
        counts = published(self.folder)
        for one in self.folder.iterdir():
            version = _VERSION.fullmatch(one.name.removeprefix(MAKING))
            if version and int(version[1]) == self._context.job_id and one != counts:
                shutil.rmtree(one, ignore_errors=True)

    def _sweep_old(self) -> None:
        """All versions but the one that counts and those that were kept for readers. Whatever else
        lies in the folder is somebody else's."""
        counts = published(self.folder)
        whole = (one for one in self.folder.iterdir() if _VERSION.fullmatch(one.name))
        old = [one for one in whole if one != counts]
        old.sort(key=lambda one: one.stat().st_mtime_ns, reverse=True)
        for one in old[self._keep :]:
            shutil.rmtree(one, ignore_errors=True)


def _flush(path: Path) -> None:
    """Waits until it is on the disk; a link needs nothing of its own."""
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
