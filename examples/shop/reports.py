"""A report in files: a second run replaces nothing half-way. jobctl run --app shop.reports"""

from __future__ import annotations

import csv
import os
import tempfile
from pathlib import Path

import jobctl

FOLDER = Path(os.environ.get("SHOP_REPORTS") or Path(tempfile.gettempdir()) / "shop-reports")


@jobctl.job(queue="reports", timeout="10m")
def monthly_report(ctx: jobctl.Context, month: str, orders: list[list[int]]) -> dict[str, str]:
    """Two files that belong together; readers see both of one run, or both of the other."""
    with ctx.publish(FOLDER / month) as new:
        with (new.path / "orders.csv").open("w") as file:
            csv.writer(file).writerows(orders)
        (new.path / "total.txt").write_text(str(sum(cents for _, cents in orders)))
    return {"version": new.version}


def read_report(month: str) -> tuple[list[list[int]], int]:
    """Of one version, whatever is published meanwhile."""
    version = jobctl.published(FOLDER / month)
    if version is None:
        raise LookupError(f"there is no report for {month} yet")
    with (version / "orders.csv").open() as file:
        orders = [[int(cell) for cell in row] for row in csv.reader(file)]
    return orders, int((version / "total.txt").read_text())
