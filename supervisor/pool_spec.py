"""A pool as `jobctl.toml` declares it: slots that serve only some queues.

Long reports in a pool of their own never hold up mail. A queue that a pool names belongs to the
pools that name it; what is left is served by the default pool, whose slots and queues are the
settings of that name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from jobctl.supervisor.setting_kinds import (
    MOST_SLOTS,
    NAMES,
    PROCESSORS,
    TEXT,
    Kind,
    Refused,
    count,
    size,
)
from jobctl.workerproc.launch import Share

#: The slots that the setting `slots` asks for.
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """`[[pool]]` of `jobctl.toml`. `queues` None: all that no other pool names. `memory`: what the
    process of a slot may hold while it runs a job, in bytes; 0: no ceiling. `nice`: 0 to 19, how
    far its slots stand back when processors are short. `cpus`: the only processors that they may
    use; empty: all that the supervisor may."""

    name: str
    slots: int
    queues: frozenset[str] | None = None
    memory: int = 0
    nice: int = 0
    cpus: frozenset[int] = frozenset()

    @property
    def share(self) -> Share:
        """What its slots take of the processors."""
        return Share(self.nice, tuple(sorted(self.cpus)))

    @classmethod
    def from_words(cls, table: object) -> Self:
        """Of a file. Raises ValueError, saying which word is wrong."""
        if not isinstance(table, dict):
            raise ValueError("it is no table")
        unknown = sorted(table.keys() - _WORDS.keys())
        if unknown:
            raise ValueError(f"there is no word {unknown[0]}; there are {', '.join(_WORDS)}")
        for word in ("name", "queues", "slots"):
            if word not in table:
                raise ValueError(f"it says no {word}")
        values: dict[str, Any] = {}
        for word, given in table.items():
            kind = _WORDS[word]
            try:
                values[word] = kind.from_file(given)
            except Refused as refused:
                why = f" ({refused})" if str(refused) else ""
                raise ValueError(f"{word} = {given!r}: it takes {kind.accepts}{why}") from None
        if values["queues"] is None:
            raise ValueError("queues must be named: the default pool serves all others")
        if values["name"] == DEFAULT:
            raise ValueError("the default pool is what the settings slots and queues say")
        return cls(**{**values, "queues": frozenset(values["queues"])})


_WORDS: dict[str, Kind] = {
    "name": TEXT, "queues": NAMES, "slots": count(1, MOST_SLOTS),
    "memory": size(16 * 2**20), "nice": count(0, 19), "cpus": PROCESSORS,
}  # fmt: skip


def all_pools(
    slots: int, queues: Iterable[str] | None, others: Sequence[PoolSpec]
) -> tuple[PoolSpec, ...]:
    """The default pool, if it has a slot, and the others."""
    own = None if queues is None else frozenset(queues)
    return (PoolSpec(DEFAULT, slots, own), *others)


def absent_cpus(pools: Iterable[PoolSpec]) -> Iterator[str]:
    """A sentence for each pool that asks for processors which this process may not use."""
    ours = os.sched_getaffinity(0)
    for pool in pools:
        if absent := sorted(pool.cpus - ours):
            yield (
                f"The pool {pool.name} asks for the processors {', '.join(map(str, absent))}; "
                f"here are {', '.join(map(str, sorted(ours)))}: mend its cpus."
            )


def queues_of(pools: Sequence[PoolSpec]) -> tuple[str, ...] | None:
    """What a host with these pools serves; None: every queue."""
    named = [pool.queues for pool in pools if pool.queues is not None]
    return None if len(named) < len(pools) else tuple(sorted(frozenset().union(*named)))
