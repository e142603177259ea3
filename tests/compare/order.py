"""What a run is to do; it reaches its process as JSON (run.py)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.compare.apps.terms import Terms
from tests.compare.roster import SYSTEMS, System
from tests.compare.scenarios import BY_NAME, Scenario


@dataclass(frozen=True)
class Order:
    """What is to be run."""

    system: System
    scenario: Scenario
    terms: Terms
    python: str
    redis_server: str

    def to_json(self) -> str:
        terms = {**asdict(self.terms), "folder": str(self.terms.folder)}
        names = {"system": self.system.name, "scenario": self.scenario.name}
        return json.dumps(
            {**names, "terms": terms, "python": self.python, "redis_server": self.redis_server}
        )

    @classmethod
    def from_json(cls, text: str) -> Order:
        given = json.loads(text)
        terms = Terms(**{**given["terms"], "folder": Path(given["terms"]["folder"])})
        (system,) = [each for each in SYSTEMS if each.name == given["system"]]
        scenario = BY_NAME[given["scenario"]]
        return cls(system, scenario, terms, given["python"], given["redis_server"])
