"""The table, as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.compare.apps.terms import Terms
from tests.compare.result import CulpritResult, PauseResult, Result, StopResult
from tests.compare.scenarios import PAUSE_PATIENCE, QUICK, SCENARIOS, STOP_PATIENCE, Kind
from tests.compare.verdict import row

Results = Mapping[str, Mapping[str, Result]]
"""System to scenario to result."""

NOTHING = "-"


def table(results: Results, labels: Mapping[str, str], terms: Terms) -> str:
    """One block a scenario and a summary; `labels` are the systems with their versions."""
    blocks = []
    for scenario in SCENARIOS:
        of_scenario = {
            system: told[scenario.name] for system, told in results.items() if scenario.name in told
        }
        if of_scenario:
            head, rows = _block(scenario.kind, of_scenario, labels, terms)
            blocks.append(f"{scenario.name}: {scenario.title}\n{_grid(head, rows)}")
    blocks.append(f"summary, the worst of each\n{_grid(*_summary(results, labels, terms))}")
    return "\n\n".join([*blocks, _legend(terms)])


def _block(
    kind: Kind, of_scenario: Mapping[str, Result], labels: Mapping[str, str], terms: Terms
) -> tuple[list[str], list[list[str]]]:
    rows = []
    for system, result in of_scenario.items():
        match result:
            case CulpritResult():
                cells = _culprit_cells(result, terms)
            case StopResult():
                cells = [_stop_cell(result), str(result.left_behind)]
            case PauseResult():
                again = result.again_after
                cells = [
                    "no" if again is None else f"after {again:.0f} s",
                    {None: NOTHING, True: "yes", False: "NO"}[result.refused],
                    result.word,
                ]
        rows.append([labels[system], *cells])
    heads = {
        Kind.CULPRIT: ["runs", "at once", "bounded", "slot back", "bystanders hurt", "record"],
        Kind.STOP: ["exits on SIGTERM", "left behind"],
        Kind.PAUSE: ["run elsewhere", "stale write refused", "record after it"],
    }
    return ["", *heads[kind]], rows


def _culprit_cells(result: CulpritResult, terms: Terms) -> list[str]:
    hurt = f"{len(result.hurt)} ({', '.join(result.hurt)})" if result.hurt else "0"
    bounded = result.bounded(terms.tries)
    open_ = f"not over after {result.watched:.0f} s"
    return [
        str(result.runs),
        str(result.most_at_once),
        {"yes": "yes", "no": "NO", "open": open_}[bounded],
        "never" if result.slot_back is None else f"{result.slot_back:.1f} s",
        hurt,
        result.word,
    ]


def _stop_cell(result: StopResult) -> str:
    after = result.exited_after
    return f"NO, not in {STOP_PATIENCE:g} s" if after is None else f"after {after:.1f} s"


def _summary(
    results: Results, labels: Mapping[str, str], terms: Terms
) -> tuple[list[str], list[list[str]]]:
    head = ["", "runs", "bounded", "slot back", "bystanders hurt", "exits on SIGTERM",
            "stale write refused"]  # fmt: skip
    rows = []
    for system, told in results.items():
        worst = row(told, terms.tries)
        back = NOTHING if worst.slot_back is None else f"{worst.slot_back:.1f} s"
        after = NOTHING if worst.exited_after is None else f"yes, {worst.exited_after:.1f} s"
        rows.append(
            [
                labels[system],
                NOTHING if worst.runs is None else str(worst.runs),
                {None: NOTHING, "yes": "yes", "no": "NO", "open": "not over"}[worst.bounded],
                "never" if worst.slot_lost else back,
                NOTHING if worst.hurt is None else str(worst.hurt),
                "NO" if worst.exits is False else after,
                {None: NOTHING, True: "yes", False: "NO"}[worst.refused],
            ]
        )
    return head, rows


def _legend(terms: Terms) -> str:
    return (
        f"{terms.slots} at once, {terms.tries} tries, a limit of {terms.limit:g} s where there is "
        f"one; beside the culprit a job of {terms.slow:g} s and {QUICK} quick ones. One run each: "
        "a demonstration, not statistics.\n"
        "slot back: from the hang or death until as many other jobs run as there are slots.\n"
        "hurt: run more than once, not finished, or 5 s late.  "
        "bounded: no more runs than tries, and over.\n"
        f"SIGTERM: to the main process; {STOP_PATIENCE:g} s is when systemd would kill.  "
        f"stale write: - if nobody ran the job elsewhere within {PAUSE_PATIENCE:g} s."
    )


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[at]) for line in [head, *rows]) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, *rows]]  # fmt: skip
    return "\n".join("  " + line for line in lines)
