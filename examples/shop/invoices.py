"""An invoice's way: rendered, mailed, booked. Run it with: jobctl run --app shop.invoices.

Three jobs one after the other, each with its own key and retry policy. When the accounting system
is down, booking is tried again, and again; the mail has been sent, and is not sent twice for that.
"""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

import jobctl
from jobctl import Retry
from shop.jobs import send_invoice_email

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
#: While this file is there, the accounting system does not answer.
DOWN = FOLDER / "accounting-is-down"


@jobctl.job(queue="invoices", owner="billing", retry=Retry(max_attempts=3, min_backoff="1s"))
def render_invoice_pdf(ctx: jobctl.Context, invoice_id: int) -> dict[str, str]:
    """Its path depends on nothing but the invoice: a second run replaces what the first left."""
    path = FOLDER / f"invoice-{invoice_id}.pdf"
    path.write_text(f"invoice {invoice_id}\n")
    return {"path": str(path)}


@jobctl.job(queue="accounting", owner="billing", retry=Retry(max_attempts=20, min_backoff="1s"))
def sync_invoice_to_accounting(ctx: jobctl.Context, invoice_id: int) -> None:
    """Booked under the invoice's number: twice the same booking is one."""
    if DOWN.exists():
        raise ConnectionError("accounting does not answer")
    (FOLDER / f"booked-{invoice_id}").touch()


def invoice_created(conn: psycopg.Connection, invoice_id: int) -> list[int]:
    """What comes of a new invoice; in the transaction that makes it, so that it is all or nothing.

    The keys are those of the event: if it is told twice, these are the same three jobs.
    """
    subject = f"invoice:{invoice_id}"
    return jobctl.chain(
        conn,
        render_invoice_pdf.item(
            invoice_id=invoice_id, key=f"invoice-pdf:{invoice_id}", subject=subject
        ),
        send_invoice_email.item(
            invoice_id=invoice_id, key=f"invoice-email:{invoice_id}", subject=subject
        ),
        sync_invoice_to_accounting.item(
            invoice_id=invoice_id, key=f"invoice-booking:{invoice_id}", subject=subject
        ),
    )
