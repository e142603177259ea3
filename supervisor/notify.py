"""A word to systemd: the protocol of sd_notify(3), which is a datagram of NAME=VALUE lines.

The rule: telling never waits and never fails. When systemd has no room for a message, or is not
there, the caller hears False and says it again in time. The address is taken out of the
environment before anything is started from here, so that no child can speak for the supervisor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

#: What the service manager sets for one process, and children must not see.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notify:
    """The way to the service manager, if there is one."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """`address` is a path, or a name in the abstract namespace behind an @; None: nobody
        listens. `watchdog`: within so many seconds systemd wants to hear from us, or ends us."""
        self.watchdog = watchdog
        self._address = None if address is None else _kernel_name(address)
        self._socket: socket.socket | None = None
        if self._address is not None:
            with suppress(OSError):  # no descriptor is left: told by `tell`
                self._socket = socket.socket(
                    socket.AF_UNIX,
                    socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                )

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Notify:
        """As this environment says, which does not say it any more afterwards."""
        address, usec, pid = (environ.pop(name, "") for name in VARIABLES)
        if not address.startswith(("/", "@")):  # vsock, of newer systemds in virtual machines
            return cls()
        for_us = pid in ("", str(os.getpid()))
        watched = for_us and usec.isascii() and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if watched else None)

    @property
    def listens(self) -> bool:
        """Whether somebody wants to hear."""
        return self._address is not None

    def tell(self, **said: object) -> bool:
        """Sends these, in one message. False if it did not arrive."""
        if self._socket is None or self._address is None:
            return False
        lines = [f"{name}={_one_line(value)}" for name, value in said.items()]
        message = "\n".join(lines).encode("utf-8", "backslashreplace")
        try:
            return self._socket.sendto(message, self._address) == len(message)
        except OSError:
            return False

    def close(self) -> None:
        """Nothing more will be told."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _kernel_name(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address


def _one_line(value: object) -> str:
    """A line break would begin another assignment, and some texts are a stranger's."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))
