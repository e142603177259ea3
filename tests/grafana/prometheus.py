"""Prometheus's own programs, where they are: `promtool`, and a server for a test.

They are not on the package index. Debian has them: `apt-get install prometheus`; others unpack the
archive of prometheus.io and put it into PATH. Where they are missing, what needs them is skipped.
"""

from __future__ import annotations

import shutil

import pytest


def promtool() -> str:
    """Its path; skips the test where there is none."""
    return _found("promtool")


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} here: apt-get install prometheus")
    return path
