"""The world outside, as far as these stories need it: a gallery, a mail server, a bank.

Each is a folder below $ONCE_FOLDER (or the temporary one), so that it outlives every process and
can be counted. The mail server forgets nothing and refuses nothing; the bank knows what was charged
under which key, as real ones do, and answers late when the file `bank/slow` is there.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path


def _folder(name: str) -> Path:
    root = Path(os.environ.get("ONCE_FOLDER") or Path(tempfile.gettempdir()) / "jobctl-once")
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Gallery:
    """Where thumbnails are."""

    def render(self, image: str) -> str:
        """Written beside its place and then moved there: nobody sees half of one."""
        place = _folder("gallery") / f"{image}.thumb"
        beside = place.with_suffix(f".{uuid.uuid4().hex}")
        beside.write_text(f"a small {image}")
        beside.replace(place)
        return str(place)


class Mail:
    """A mail server without idempotency keys: what is sent twice arrives twice."""

    def send(self, to: str, text: str, message_id: str) -> str:
        """Returns what the server calls it."""
        sent = _folder("mail") / uuid.uuid4().hex
        sent.write_text(f"{to}\n{message_id}\n{text}\n")
        return f"<{sent.name}@example>"


class Bank:
    """A provider of payments with idempotency keys, that can be asked by them."""

    def charge(self, cents: int, idempotency_key: str, timeout: float) -> str:
        """Returns the receipt. TimeoutError: nobody knows whether it was charged."""
        account = _folder("bank") / idempotency_key.replace("/", "_")
        try:
            with account.open("x") as file:
                file.write(f"{cents}\n")
        except FileExistsError:
            pass  # the same key: it was charged, and is not charged again
        with _folder("bank").joinpath("calls").open("a") as calls:
            calls.write(f"{idempotency_key}\n")
        if (slow := _folder("bank") / "slow").exists():
            slow.unlink()
            raise TimeoutError(f"the bank has not answered within {timeout:.0f} s")
        return f"receipt of {idempotency_key}"

    def find(self, idempotency_key: str) -> str | None:
        """The receipt of what was charged under this key; None: nothing was."""
        account = _folder("bank") / idempotency_key.replace("/", "_")
        return f"receipt of {idempotency_key}" if account.exists() else None


gallery, mail, bank = Gallery(), Mail(), Bank()
