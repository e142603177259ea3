"""Acting as another user, for tests that run as root."""

from __future__ import annotations

import os
import pwd
import traceback
from collections.abc import Callable

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as several users")


def acting_as(name: str, act: Callable[[], str]) -> str:
    """What `act` returns, or how it failed, in a child process that has become user `name`.

    A fork, not a new interpreter: that user may not be allowed to enter our virtual environment.
    """
    user = pwd.getpwnam(name)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            said = act()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said
