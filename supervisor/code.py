"""The application's code, as far as the supervisor knows it: the types that each generation runs.

Names and policies only, sent by the template; the code itself never comes here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobctl.store.job_type import JobType

#: The longest that a claim may last when no type is known yet.
UNKNOWN_SECONDS = 300.0


class Code:
    """Types by generation of the code; a reload brings the next generation."""

    def __init__(self) -> None:
        self._generations: dict[int, dict[str, JobType]] = {}

    def learn(self, generation: int, types: Sequence[JobType]) -> None:
        """What slots of this generation can run."""
        self._generations[generation] = {one.name: one for one in types}

    def types(self, generation: int | None = None) -> Mapping[str, JobType]:
        """What slots of this generation can run; None: of the newest."""
        if generation is None:
            generation = max(self._generations, default=0)
        return self._generations.get(generation, {})

    @property
    def known(self) -> bool:
        """Whether any code has been imported yet."""
        return bool(self._generations)

    def longest_timeout(self) -> float:
        """Of all types of all generations, in seconds."""
        every = (one for types in self._generations.values() for one in types.values())
        return max((one.timeout_seconds for one in every), default=UNKNOWN_SECONDS)
