"""What the code of each generation declares: told of once, whoever says it first.

A template says it when it has imported the app, and so does each slot where the template has not.
"""

from __future__ import annotations

import asyncio

from jobctl.supervisor.listener import Listener
from jobctl.supervisor.template import Declared


class Declarations:
    """Job types and crons by generation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        self._loop = loop
        self._listener = listener
        self._declared: dict[int, Declared] = {}  # until told
        self._told: set[int] = set()

    def wants(self, generation: int) -> bool:
        """Whether nobody has been told of it yet."""
        return generation not in self._told

    def learn(self, generation: int, declared: Declared) -> None:
        """This is what it declares."""
        self._declared[generation] = declared

    def announce(self, generation: int) -> None:
        """Tells of it, once, when it is known; soon: this is called in the middle of things."""
        if generation in self._told or generation not in self._declared:
            return
        self._told.add(generation)
        declared = self._declared.pop(generation)
        self._loop.call_soon(self._listener.on_types, generation, declared.types, declared.crons)
