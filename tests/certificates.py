"""A certificate authority that nobody trusts but a test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

OPENSSL = shutil.which("openssl")


class Authority:
    """One CA in a folder of its own; `file` is what clients are given."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._folder.chmod(0o755)
        self.file = self._folder / "ca.pem"
        self._key = self._folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.file,
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 asks for it
        )  # fmt: skip
        self.file.chmod(0o644)

    def issue(self, host: str, owner: tuple[int, int]) -> tuple[Path, Path]:
        """A certificate for this host and its key, which `owner` alone may read."""
        certificate, key = self._folder / "server.crt", self._folder / "server.key"
        request, extension = self._folder / "server.csr", self._folder / "server.ext"
        extension.write_text(
            f"subjectAltName=DNS:{host}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={host}", "-keyout", key, "-out", request,
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self._key,
            "-CAcreateserial", "-days", "2", "-extfile", extension, "-out", certificate,
        )  # fmt: skip
        certificate.chmod(0o644)
        key.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(key, *owner)
        return certificate, key


def _openssl(*words: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)
