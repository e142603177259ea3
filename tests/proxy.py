"""A wire to PostgreSQL that can be made to misbehave: TCP in front, the server's socket behind.

The kernel acknowledges what arrives here whatever the proxy does with it, as a dead machine behind
a living network does.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Wire(Enum):
    """What becomes of the bytes. Those that were swallowed never arrive."""

    WORKS = "both ways"
    DEAF = "what the client says arrives, the answers do not"
    BLACK_HOLE = "nothing arrives, everything is acknowledged"


class Proxy:
    """`dsn` leads through it. New connections are accepted whatever the wire does."""

    def __init__(self, target: str) -> None:
        self.wire = Wire.WORKS
        self.accepted = 0
        parameters = conninfo_to_dict(target)
        self._socket_path = f"{parameters['host']}/.s.PGSQL.{parameters.get('port') or 5432}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.dsn = make_conninfo(**{**parameters, "host": host, "port": port, "sslmode": "disable"})
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    @contextmanager
    def to(cls, target: str) -> Iterator[Self]:
        """A proxy to this DSN, gone at the end."""
        proxy = cls(target)
        try:
            yield proxy
        finally:
            proxy._listener.close()
            proxy.cut()

    def cut(self) -> None:
        """Resets all connections that there are; the server sees its clients leave."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                if end.family == socket.AF_INET:  # an RST instead of a goodbye
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._socket_path)
                with self._lock:
                    self._ends += [client, server]
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        to_server = sink.family == socket.AF_UNIX
        with suppress(OSError):
            while data := source.recv(65536):
                if self.wire is Wire.WORKS or (self.wire is Wire.DEAF and to_server):
                    sink.sendall(data)
        if self.wire is not Wire.BLACK_HOLE:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
