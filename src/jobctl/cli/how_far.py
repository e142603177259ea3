"""How far a job is, in words: what `ctx.progress` said last."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobctl.cli.moments import since


def words(progress: Any, now: datetime | None = None) -> str:
    """`rendering 47 of 120 (39 %), 3s ago`; of a column that anybody may have written. Without
    `now`, not when."""
    if not isinstance(progress, dict):
        return str(progress)
    parts = [str(progress.get("phase", ""))]
    done, total = progress.get("done"), progress.get("total")
    if done is not None:
        parts.append(str(done) if total is None else f"{done} of {total}{_share(done, total)}")
    elif total is not None:
        parts.append(f"of {total}")
    said = " ".join(part for part in parts if part)
    if now is None:
        return said
    try:
        return f"{said}, {since(now, datetime.fromisoformat(progress['updated_at']))} ago"
    except (KeyError, TypeError, ValueError):
        return said


def _share(done: Any, total: Any) -> str:
    if not isinstance(done, int | float) or not isinstance(total, int | float) or not total:
        return ""
    return f" ({done / total:.0%})".replace("%", " %")
