"""A ground for attempts without a supervisor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attempting import Ground, ground_on


@pytest.fixture
def ground(database: str) -> Iterator[Ground]:
    """Claims, and contexts for them."""
    with ground_on(database) as ground:
        yield ground
