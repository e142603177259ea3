"""Migrations as files: `NNNN_name.sql`, numbered from 1 without a gap, never edited once released.

A file's header says `-- compatible-from: N`: the oldest number that code may have as its newest and
still work with the schema as this file leaves it. `-- no-transaction` marks a file whose statements
cannot run inside one (CREATE INDEX CONCURRENTLY). Such a file must be safe to run again from its
start, because it may be killed anywhere, and holds plain statements only, each ending with a
semicolon at the end of a line: it is split there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from jobctl.store.statements import without_header

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMPATIBLE = re.compile(r"^-- compatible-from: (\d+)$", re.MULTILINE)
_NO_TRANSACTION = re.compile(r"^-- no-transaction$", re.MULTILINE)
_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    text: str
    compatible_from: int
    in_transaction: bool

    @property
    def label(self) -> str:
        """What people call it: `0001_first`."""
        return f"{self.number:04}_{self.name}"

    @property
    def sha256(self) -> str:
        """What proves that a database was migrated by this very text."""
        return sha256(self.text.encode()).hexdigest()

    def statements(self) -> list[str]:
        """What is sent, one string a time."""
        if self.in_transaction:
            return [self.text]
        parts = (without_header(part) for part in _STATEMENT_END.split(self.text))
        return [part for part in parts if part]


def parse(file_name: str, text: str) -> Migration:
    """The migration in a file of this name. Raises ValueError for one that breaks the rules."""
    named = _FILE_NAME.fullmatch(file_name)
    if named is None:
        raise ValueError(f"{file_name} is not named like a migration, NNNN_name.sql")
    text = text.replace("\r\n", "\n")  # a checkout must not change the checksum
    header = text[: len(text) - len(without_header(text))]
    compatible = _COMPATIBLE.search(header)
    if compatible is None:
        raise ValueError(f"{file_name} does not say in its header '-- compatible-from: N'")
    number, oldest = int(named[1]), int(compatible[1])
    if not 1 <= oldest <= number:
        raise ValueError(f"{file_name} says compatible-from: {oldest}, it must be 1 to {number}")
    return Migration(number, named[2], text, oldest, _NO_TRANSACTION.search(header) is None)


def load(folder: Traversable) -> tuple[Migration, ...]:
    """A folder's migrations, in order. Raises ValueError when a number is missing or double."""
    entries = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    found = [parse(name, (folder / name).read_text(encoding="utf-8")) for name in entries]
    return in_order(found)


def in_order(found: Sequence[Migration]) -> tuple[Migration, ...]:
    """`found`, if it is numbered 1, 2, 3, ... Raises ValueError."""
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)) or not found:
        raise ValueError(f"migrations must be numbered 1, 2, 3, ... without a gap, not {numbers}")
    return tuple(found)


@cache
def ours() -> tuple[Migration, ...]:
    """The migrations that this code comes with."""
    return load(files(__package__) / "migrations")
