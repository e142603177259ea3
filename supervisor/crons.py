"""What this host declares: the crons of its app and those of its file. Never what is fired.

A cron of the file takes the place of the app's of the same name: who runs the host has the last
word about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobctl.store.cron_spec import CronSpec


class Crons:
    """Known once the app has been imported; until then nothing is said, or what the app declares
    would seem to be gone."""

    def __init__(self, of_file: Sequence[CronSpec]) -> None:
        self.known = False
        self._of_file = of_file
        self._of_app: Sequence[CronSpec] = ()

    def learn(self, crons: Sequence[CronSpec]) -> None:
        """The newest generation's."""
        self.known = True
        self._of_app = crons

    def declared(self) -> list[CronSpec]:
        """By name."""
        mine = {one.name: one for one in (*self._of_app, *self._of_file)}
        return [mine[name] for name in sorted(mine)]
