"""`make chaos`: a long storm, then the negative controls. Exits 1 if anything is wrong."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from tests.chaos import cables
from tests.chaos.checker import Verdict
from tests.chaos.controls import CONTROLS, Control, without
from tests.chaos.storm import Plan, run
from tests.servers import guarded_folder

SHOWN = 20  # violations


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long the storm lasts")
    parser.add_argument("--seed", type=int, default=time.monotonic_ns() % 1_000_000)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--no-controls", action="store_true", help="only the storm")
    parser.add_argument("--only-control", help="only the controls of which the guard has this word")
    words = parser.parse_args()
    without_cables = cables.enter(["-m", "tests.chaos", *sys.argv[1:]])
    # Whoever stops this wants everything that it has started to stop.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    good = True
    if words.only_control is None:
        _say(f"A storm of {words.seconds:g} s over {words.hosts} hosts, seed {words.seed}")
        cabled = 0 if without_cables else words.hosts // 2
        if cabled:
            _say(f"{cabled} of them in network namespaces of their own, by cables that are pulled")
        else:
            _say(f"All of them behind proxies; no cables are pulled: {without_cables}")
        plan = Plan(words.seconds, seed=words.seed, hosts=words.hosts, cabled=cabled)
        with guarded_folder() as folder:
            good = _report(run(plan, folder), folder)
    for control in () if words.no_controls else CONTROLS:
        if words.only_control is None or words.only_control in control.guard:
            good &= _control(control)
    return 0 if good else 1


def _control(control: Control) -> bool:
    _say(f"Without {control.guard}, for {control.plan.seconds:g} s")
    with guarded_folder() as folder:
        verdict = run(control.plan, folder, without(control, folder))
    found = [one for one in verdict.violations if control.finds in one]
    if not found:
        _say(f"  NOT NOTICED: nothing says {control.finds!r}; found: {verdict.violations[:3]}")
        return False
    _say(f"  noticed, {len(found)} times; the first: {found[0]}")
    return True


def _report(verdict: Verdict, folder: Path) -> bool:
    for what, number in sorted(verdict.figures.items()):
        _say(f"  {number:>8}  {what}")
    if not verdict.violations:
        _say("  nothing was lost, nothing was done twice, nothing stale was accepted")
        return True
    for violation in verdict.violations[:SHOWN]:
        _say(f"  VIOLATION: {violation}")
    _say(f"  {len(verdict.violations)} violations in all")
    return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
