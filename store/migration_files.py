"""Migrations as files: `NNNN_name.sql`, numbered from 1 without a gap, never edited once released.

A file's header says `-- compatible-from: N`: the oldest number that code may have as its newest and
still work with the schema as this file leaves it. `-- no-transaction` marks a file whose statements
cannot run inside one (CREATE INDEX CONCURRENTLY). Such a file must be safe to run again from its
start, because it may be killed anywhere, and holds plain statements only, each ending with a
semicolon at the end of a line: it is split there.

What the schema can do - its functions and views - is in `functions/*.sql` as it is now, one
definition of each. All of it is put in place at the end of the newest migration that says
`-- functions: DIGEST` in its header, in the same transaction. The digest is of those files: a
change to them asks for a migration, and hosts can tell whether a schema has what their code needs.
What CREATE OR REPLACE cannot change, that migration drops first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from jobctl.store.statements import without_header

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMPATIBLE = re.compile(r"^-- compatible-from: (\d+)$", re.MULTILINE)
_FUNCTIONS = re.compile(r"^-- functions: ([0-9a-f]{12})$", re.MULTILINE)
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
    functions_digest: str | None = None  # what its header promises
    functions: str = ""  # what is put in place at its end; of the newest that promises some

    @property
    def label(self) -> str:
        """What people call it: `0001_first`."""
        return f"{self.number:04}_{self.name}"

    @property
    def sha256(self) -> str:
        """What proves that a database was migrated by this very text, and these functions."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def script(self) -> str:
        """All that is sent when it runs in a transaction."""
        return f"{self.text.rstrip()}\n\n{self.functions}" if self.functions else self.text

    def statements(self) -> list[str]:
        """What is sent, one string a time."""
        if self.in_transaction:
            return [self.script]
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
    promised = _FUNCTIONS.search(header)
    migration = Migration(
        number,
        named[2],
        text,
        oldest,
        in_transaction=_NO_TRANSACTION.search(header) is None,
        functions_digest=promised[1] if promised else None,
    )
    if promised and not migration.in_transaction:
        raise ValueError(f"{file_name} brings functions, which needs a transaction")
    return migration


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


def with_functions(found: Sequence[Migration], functions: str) -> tuple[Migration, ...]:
    """`found`, the newest that promises functions with them. Raises ValueError if they are not."""
    newest = max((one.number for one in found if one.functions_digest), default=0)
    if not newest:
        raise ValueError(
            "no migration brings the functions: its header says '-- functions: DIGEST'"
        )
    bringer = found[newest - 1]
    if bringer.functions_digest != digest(functions):
        raise ValueError(
            f"the files in functions/ are not those of {bringer.label}: if it is released, add a "
            f"migration with '-- functions: {digest(functions)}' in its header; else change its own"
        )
    return tuple(
        replace(one, functions=functions) if one.number == newest else one for one in found
    )


def digest(functions: str) -> str:
    """What a header promises."""
    return sha256(functions.encode()).hexdigest()[:12]


def functions_text(folder: Traversable) -> str:
    """All functions and views, in the order of their files' names."""
    entries = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    texts = ((folder / name).read_text(encoding="utf-8") for name in entries)
    return "\n".join(text.replace("\r\n", "\n") for text in texts)


@cache
def ours() -> tuple[Migration, ...]:
    """The migrations that this code comes with."""
    here = files(__package__)
    return with_functions(load(here / "migrations"), functions_text(here / "functions"))
