"""The example of a web endpoint, asked over HTTP while a real host runs the jobs."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from tests.system.host import Hosts, Jobs
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
Ask = Callable[[str, str], tuple[int, dict[str, Any], str | None]]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def ask(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Sends a request to the example's server: status, body, Location."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("SHOP_DSN", database)
    from shop.web import application

    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()

        def send(method: str, path: str) -> tuple[int, dict[str, Any], str | None]:
            url = f"http://127.0.0.1:{server.server_port}{path}"
            request = urllib.request.Request(url, method=method)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
                    return answer.status, json.load(answer), answer.headers["Location"]
            except urllib.error.HTTPError as error:
                return error.code, json.load(error), None

        try:
            yield send
        finally:
            server.shutdown()
            thread.join()


def test_accepted_shown_and_too_late(hosts: Hosts, jobs: Jobs, ask: Ask) -> None:
    """202 and where to look; the second time it is the same job; its end is seen there."""
    status, body, location = ask("POST", "/invoices/1842/email")
    assert (status, location) == (202, f"/jobs/{body['job']}")
    assert location is not None
    assert ask("POST", "/invoices/1842/email")[1] == body
    assert ask("GET", location)[1]["state"] == "queued"
    environ = {"PYTHONPATH": str(EXAMPLES)}
    hosts.start("one", "--slots", "1", app="shop.jobs", environ=environ).ready()
    until(lambda: ask("GET", location)[1]["state"] == "succeeded", within=30, what="its end")
    shown = ask("GET", location)[1]
    assert shown["result"] == {"message_id": "<invoice-1842@shop.example>"}
    assert ask("DELETE", location)[:2] == (409, {"answer": "already_succeeded"})
    assert ask("GET", "/jobs/404")[0] == ask("GET", "/elsewhere")[0] == 404


def test_cancelled(jobs: Jobs, ask: Ask) -> None:
    """Before it runs; and that is seen as well."""
    location = ask("POST", "/invoices/1/email")[2]
    assert location is not None
    assert ask("DELETE", location)[:2] == (200, {"answer": "cancelled"})
    assert ask("GET", location)[1]["state"] == "cancelled"


def test_the_commit_fails(jobs: Jobs, ask: Ask) -> None:
    """No number is given out for what does not exist."""
    jobs.connection.execute("""
        CREATE FUNCTION jobctl.refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'no'; END$$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON jobctl.job DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION jobctl.refuse();
    """)
    try:
        assert ask("POST", "/invoices/1/email")[:2] == (503, {"error": "try again"})
    finally:
        jobs.connection.execute("DROP TRIGGER refuse ON jobctl.job")
        jobs.connection.execute("DROP FUNCTION jobctl.refuse()")
    assert jobs.connection.execute("SELECT FROM jobctl.jobs").fetchall() == []
    assert ask("POST", "/invoices/1/email")[0] == 202
