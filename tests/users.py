"""Acting as another user, for tests that run as root."""

from __future__ import annotations

import ctypes
import os
import pwd
import traceback
from collections.abc import Callable

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as several users")


CAPABILITIES = {"cap_sys_ptrace": 19}


def acting_as(name: str, act: Callable[[], str], *, without: str = "") -> str:
    """What `act` returns, or how it failed, in a child process that has become user `name`.

    `without` names a capability that the child does not have, though it may be root. A fork, not
    a new interpreter: that user may not be allowed to enter our virtual environment.
    """
    user = pwd.getpwnam(name)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if without:
                _give_up(CAPABILITIES[without])
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


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _give_up(capability: int) -> None:
    """capset(2), for this process; see capabilities(7) for the version and the two halves."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(0x20080522, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    half = sets[capability // 32]
    half.effective &= ~(1 << capability % 32)
    half.permitted &= ~(1 << capability % 32)
    if libc.capset(ctypes.byref(header), sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
