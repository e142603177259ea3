"""A connection to PostgreSQL that can be held up: what is sent then arrives late, or never.

It listens on a Unix socket like the embedded server's own. While it holds, both ends are still
acknowledged by their kernels, so nobody is told that anything is wrong.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

_NAME = ".s.PGSQL.5432"


class Cut:
    """Forwards from `folder` to the server in `upstream` until `hold`."""

    def __init__(self, folder: Path, upstream: Path) -> None:
        folder.mkdir(mode=0o700)
        self._upstream = str(upstream / _NAME)
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._flows.clear()

    def release(self) -> None:
        """What was held arrives now."""
        self._flows.set()

    def close(self) -> None:
        """Lets nobody in any more."""
        self._flows.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                continue
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                self._flows.wait()
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
