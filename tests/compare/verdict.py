"""A system's row: what its runs add up to; and whether jobctl's row holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.compare.apps.terms import Terms
from tests.compare.result import CulpritResult, PauseResult, Result, StopResult
from tests.compare.scenarios import Scenario

SLACK = 1.0  # seconds that a replacement may take after deadline and grace


@dataclass(frozen=True)
class Row:
    """The worst of a system's runs. None where no run says anything."""

    runs: int | None
    bounded: str | None
    slot_back: float | None
    slot_lost: bool
    hurt: int | None
    exits: bool | None
    exited_after: float | None
    refused: bool | None


def row(results: Mapping[str, Result], tries: int) -> Row:
    """`results` by the names of their scenarios; those that are missing say nothing."""
    culprits = [each for each in results.values() if isinstance(each, CulpritResult)]
    stops = [each for each in results.values() if isinstance(each, StopResult)]
    pauses = [each for each in results.values() if isinstance(each, PauseResult)]
    bounds = {each.bounded(tries) for each in culprits}
    back = [each.slot_back for each in culprits]
    exits = [each.exited_after for each in stops]
    return Row(
        runs=max((each.runs for each in culprits), default=None),
        bounded=next((word for word in ("no", "open", "yes") if word in bounds), None),
        slot_back=max((each for each in back if each is not None), default=None),
        slot_lost=None in back,
        hurt=sum(len(each.hurt) for each in culprits) if culprits else None,
        exits=all(each is not None for each in exits) if exits else None,
        exited_after=max((each for each in exits if each is not None), default=None),
        refused=pauses[0].refused if pauses else None,
    )


def complaints(
    results: Mapping[str, Result], scenarios: Sequence[Scenario], terms: Terms
) -> list[str]:
    """In what jobctl's row does not hold what jobctl promises; nothing, if it does."""
    found = []
    for scenario in scenarios:
        match results.get(scenario.name):
            case CulpritResult() as result:
                found += [f"{scenario.name}: {each}" for each in _of_culprit(result, terms)]
                if scenario.deed == "wakes" and result.succeeded:
                    found.append(f"{scenario.name}: a 'done' that came too late was accepted")
            case StopResult() as result:
                if result.exited_after is None:
                    found.append(f"{scenario.name}: it does not exit on SIGTERM")
                elif result.left_behind:
                    found.append(f"{scenario.name}: left {result.left_behind} processes behind")
            case PauseResult() as result:
                if result.refused is None:
                    found.append(f"{scenario.name}: nobody ran the paused host's job")
                elif not result.refused:
                    found.append(f"{scenario.name}: the stale write was accepted")
            case None:
                found.append(f"{scenario.name}: no result")
    return found


def _of_culprit(result: CulpritResult, terms: Terms) -> list[str]:
    found = []
    bound = terms.limit + terms.grace + SLACK
    if result.bounded(terms.tries) != "yes":
        found.append(f"not bounded: {result.runs} runs, {result.word} at the end")
    if result.slot_back is None:
        found.append("the slot was lost")
    elif result.slot_back > bound:
        found.append(f"the slot was back after {result.slot_back:.1f} s, not {bound:g} s")
    if result.most_at_once > 1:
        found.append(f"{result.most_at_once} copies ran at once")
    if result.hurt:
        found.append(f"bystanders hurt: {', '.join(result.hurt)}")
    return found
