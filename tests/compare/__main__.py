"""What happens when a job goes wrong: jobctl and its peers, on this machine, now.

    make compare
    make compare ARGS="--only jobctl,procrastinate --json"

Each peer is installed from PyPI into an environment of its own, is set up as its documentation
has it, and meets the same jobs. Exits 0 if jobctl's own row holds what jobctl promises, 1 if it
does not, 2 if it was called wrongly. It ends by itself, and what it started ends with it.
"""

# ruff: noqa: T201 - it tells people

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jobctl.store.embedded import throw_away
from tests.compare import venvs
from tests.compare.apps.terms import Terms
from tests.compare.comparison import Comparison
from tests.compare.order import Order
from tests.compare.roster import OWN, SYSTEMS, System
from tests.compare.scenarios import BY_NAME, SCENARIOS, Scenario, hard_limit
from tests.compare.table import Results, table
from tests.compare.verdict import complaints, row


@dataclass(frozen=True)
class Present:
    """A system that can be compared here."""

    system: System
    python: Path
    version: str
    redis_server: str

    @property
    def label(self) -> str:
        return f"{self.system.name} {self.version}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    options = _options(arguments)
    # A stop from outside takes the same way out as Ctrl-C: through every `finally`.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    scenarios = [each for each in SCENARIOS if each.name in options.scenarios]
    present, skipped = _prepare([each for each in SYSTEMS if each.name in options.only])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobctl-compare-")))
        if options.keep:
            stack.callback(shutil.copytree, folder, options.keep, ignore=_sockets)
        server = stack.enter_context(throw_away())
        terms = Terms(
            folder=folder, dsn="", redis="", slots=4, tries=3, limit=options.limit, grace=1.0,
            slow=3 * options.limit, stale=6.0, late_ack=False,
        )  # fmt: skip
        comparison = Comparison(server, options.at_once)
        comparison.work_off(_orders(present, scenarios, terms))
    results = {each.system.name: comparison.results.get(each.system.name, {}) for each in present}
    left_out = [*skipped, *comparison.failures]
    wrong = complaints(results[OWN], scenarios, terms) if OWN in results else []
    if options.json:
        print(json.dumps(_facts(present, results, terms, left_out, wrong), indent=2))
    else:
        _print(present, results, terms, left_out)
    for line in wrong:
        print(f"jobctl does not hold what it promises: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _prepare(systems: Sequence[System]) -> tuple[list[Present], list[str]]:
    """The systems that can run here, and for the others a word why not."""
    present, skipped = [], []
    for system in systems:
        print(f"preparing {system.name}", file=sys.stderr)
        try:
            python = venvs.python_of(system)
            server = venvs.redis_server() if system.redis else ""
        except venvs.Unavailable as reason:
            skipped.append(f"{system.name}: {reason}")
        else:
            present.append(Present(system, python, venvs.version_of(system, python), server))
    return present, skipped


def _orders(present: Sequence[Present], scenarios: Sequence[Scenario], terms: Terms) -> list[Order]:
    """jobctl first, while the machine is quiet; then what may take longest."""
    orders = [
        Order(
            each.system,
            scenario,
            replace(
                terms,
                folder=terms.folder / f"{each.system.name}-{scenario.name}",
                late_ack=each.system.late_ack,
            ),
            str(each.python),
            each.redis_server,
        )
        for each in present
        for scenario in scenarios
    ]
    return sorted(
        orders,
        key=lambda each: (
            each.system.name != OWN,
            -hard_limit(each.system, each.scenario, each.terms),
        ),
    )


def _print(
    present: Sequence[Present], results: Results, terms: Terms, left_out: Sequence[str]
) -> None:
    print(table(results, {each.system.name: each.label for each in present}, terms))
    for each in present:
        print(f"{each.label}: {each.system.remark}.")
    for line in left_out:
        print(f"left out: {line}.")


def _facts(
    present: Sequence[Present],
    results: Results,
    terms: Terms,
    left_out: Sequence[str],
    wrong: Sequence[str],
) -> dict[str, Any]:
    kept = ("slots", "tries", "limit", "grace", "slow", "stale")
    return {
        "conditions": {name: value for name, value in asdict(terms).items() if name in kept},
        "systems": {
            each.system.name: {
                "version": each.version,
                "how": each.system.remark,
                "summary": asdict(row(results[each.system.name], terms.tries)),
                "scenarios": {
                    name: asdict(result) for name, result in results[each.system.name].items()
                },
            }
            for each in present
        },
        "left_out": list(left_out),
        "complaints": list(wrong),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make compare", description=(__doc__ or "").split("\n")[0]
    )
    systems = [each.name for each in SYSTEMS]
    parser.add_argument(
        "--only", type=_some_of(systems), default=systems, metavar="NAMES",
        help=f"systems, with commas between: {', '.join(systems)}",
    )  # fmt: skip
    parser.add_argument(
        "--scenarios", type=_some_of(list(BY_NAME)), default=list(BY_NAME), metavar="NAMES",
        help=f"scenarios, with commas between: {', '.join(BY_NAME)}",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--at-once", type=int, default=3, help="runs side by side (default 3)")
    parser.add_argument("--limit", type=float, default=5.0, help="a job's time limit (default 5)")
    parser.add_argument("--keep", type=Path, help="copy the diaries and logs of the runs to here")
    return parser.parse_args(arguments)


def _some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    def some(text: str) -> list[str]:
        chosen = [each.strip() for each in text.split(",") if each.strip()]
        if unknown := [each for each in chosen if each not in names]:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown)} is not known; there are {', '.join(names)}"
            )
        return chosen

    return some


def _sockets(folder: str, names: list[str]) -> list[str]:
    """What cannot be copied."""
    return [name for name in names if (Path(folder) / name).is_socket()]


if __name__ == "__main__":
    sys.exit(main())
