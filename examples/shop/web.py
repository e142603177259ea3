"""The shop's web side: takes orders for work and shows how far it is. Run it: python -m shop.web

202 and a number are answered only once the job is committed: what was answered exists, and what
was not can be asked for again, because the key makes it the same job. What is shown is read from
durable rows alone; no worker is asked, so it is true whatever becomes of them. Who may ask is not
said here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import make_server

import psycopg

import jobctl
from shop.jobs import send_invoice_email

Answer = tuple[str, dict[str, Any]]
StartResponse = Callable[[str, list[tuple[str, str]]], object]

INVOICE = re.compile(r"/invoices/([0-9]{1,9})/email")
JOB = re.compile(r"/jobs/([0-9]{1,18})")


def application(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """WSGI: POST /invoices/N/email, GET /jobs/N, DELETE /jobs/N."""
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    try:
        if (found := INVOICE.fullmatch(path)) and method == "POST":
            status, body = accept(int(found[1]))
        elif (found := JOB.fullmatch(path)) and method == "GET":
            status, body = show(int(found[1]))
        elif (found := JOB.fullmatch(path)) and method == "DELETE":
            status, body = cancel(int(found[1]))
        else:
            status, body = "404 Not Found", {"error": "there is nothing here"}
    except jobctl.NoSuchJob:
        status, body = "404 Not Found", {"error": "there is no such job, or not any more"}
    except psycopg.Error:  # nothing was promised; the same request may be sent again
        status, body = "503 Service Unavailable", {"error": "try again"}
    headers = [("Content-Type", "application/json")]
    if "job" in body:
        headers.append(("Location", f"/jobs/{body['job']}"))
    start_response(status, headers)
    return [json.dumps(body).encode()]


def accept(invoice_id: int) -> Answer:
    """The work is committed when this returns."""
    with psycopg.connect(os.environ["SHOP_DSN"]) as conn:  # commits at its end, or raises
        job_id = send_invoice_email.enqueue(
            conn, invoice_id=invoice_id, key=f"invoice-email:{invoice_id}"
        )
    return "202 Accepted", {"job": job_id}


def show(job_id: int) -> Answer:
    """Not its arguments, and not the text of an error: they are for the people who run it."""
    with psycopg.connect(os.environ["SHOP_DSN"]) as conn:
        job = jobctl.get(conn, job_id)
    return "200 OK", {
        "state": job.state,
        "cancel_requested": job.cancel_requested_at is not None,
        "progress": job.progress,
        "result": job.result,
        "attempt": job.attempt,
        "failed_with": job.failure_class,
    }


def cancel(job_id: int) -> Answer:
    """202 while it may still run: then GET says how it ended."""
    with psycopg.connect(os.environ["SHOP_DSN"]) as conn:
        answer = jobctl.cancel(conn, job_id, reason="asked for on the web", actor="web")
    status = {"cancelled": "200 OK", "cancel_requested": "202 Accepted"}.get(answer, "409 Conflict")
    return status, {"answer": answer}


if __name__ == "__main__":
    with make_server("127.0.0.1", int(os.environ.get("PORT", "8000")), application) as server:
        server.serve_forever()
