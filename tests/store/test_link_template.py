"""A link leads where its template says, whatever a stranger has put into the job."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.link_template import LONGEST_URL, check_link, link_of
from tests.exploring import explore

JOB: dict[str, Any] = {
    "id": 7, "type": "charge", "key": "charge:1842", "subject": "invoice:1842",
    "args": {"invoice_id": 1842, "name": "Zoë & Co", "none": None, "yes": True, "list": [1]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("https://admin.example/{subject}", "https://admin.example/invoice:1842"),
        ("http://localhost:8000/jobs/{id}#{key}", "http://localhost:8000/jobs/7#charge:1842"),
        ("https://a.example/{type}/{args[invoice_id]}", "https://a.example/charge/1842"),
        ("https://a.example/?q={args[name]}", "https://a.example/?q=Zo%C3%AB%20%26%20Co"),
        ("https://a.example?q={id}", "https://a.example?q=7"),
        ("https://a.example", "https://a.example"),
        ("https://[::1]:8000/{id}", "https://[::1]:8000/7"),
        # Nothing to fill it with: no link, and no broken one.
        ("https://a.example/{args[absent]}", None),
        ("https://a.example/{args[none]}", None),
        ("https://a.example/{args[yes]}", None),
        ("https://a.example/{args[list]}", None),
    ],
)
def test_what_a_job_makes_of_it(template: str, url: str | None) -> None:
    """Fields are filled in and quoted."""
    check_link(template)
    assert link_of(template, JOB) == url


@pytest.mark.parametrize(
    "template",
    [
        "javascript:alert({id})",
        "ftp://a.example/{id}",
        "//a.example/{id}",
        "/jobs/{id}",
        "https:///{id}",
        "https://{subject}/jobs",
        "https://{subject}.example/jobs",
        "https://a.example:{id}/",
        "https://a.example{subject}",
        "{subject}",
        "http{id}://a.example/",
        "https://user:secret@a.example/{id}",
        "https://a.example/{owner}",
        "https://a.example/{subject!r}",
        "https://a.example/{subject.__class__}",
        "https://a.example/{args}",
        "https://a.example/{args[a][b]}",
        "https://a.example/{",
        "https://a.example/}",
        "https://a.example/{{id}}",
        "https://a.example/ {id}",
        "https://a.example/\n{id}",
        "https://a.example/\x1b[31m",
        "https://a.example:99999999/",
        "https://[zz]/{id}",
        "",
    ],
)
def test_templates_that_make_no_link(template: str) -> None:
    """Refused where they are declared; and whoever wrote one into the table gets no link."""
    with pytest.raises(ValueError, match=r"^(may|must) "):
        check_link(template)
    assert link_of(template, JOB) is None


@pytest.mark.parametrize("subject", ["", ".", "..", None, "\ud800", ["x"], True])
def test_values_that_make_no_link(subject: Any) -> None:
    """A browser takes dots for steps up, whatever they are quoted as."""
    job = {**JOB, "subject": subject}
    assert link_of("https://a.example/jobs/{subject}/x", job) is None


def test_no_link_is_endless() -> None:
    """A long value is no reason for one."""
    for endless in ("x" * LONGEST_URL, 10**5000):
        assert link_of("https://a.example/{subject}", {**JOB, "subject": endless}) is None


def test_arguments_that_are_too_deep_to_read() -> None:
    """They are shown as text, and have no members then."""
    assert link_of("https://a.example/{args[x]}", {**JOB, "args": '{"x": 1}'}) is None


@explore(500)
@given(st.text(max_size=60), st.text(max_size=60), st.one_of(st.text(max_size=60), st.integers()))
def test_a_stranger_cannot_break_out(subject: str, key: str, name: Any) -> None:
    """Host, path, query and fragment have the shape of the template, and the values come back."""
    template = "https://admin.example/a/{subject}/b?k={key}&z=1#{args[name]}"
    url = link_of(template, {**JOB, "subject": subject, "key": key, "args": {"name": name}})
    if url is None:
        return
    assert url.isascii()
    assert url.isprintable()
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc) == ("https", "admin.example")
    empty, first, middle, last = parts.path.split("/")
    assert (empty, first, unquote(middle), last) == ("", "a", subject, "b")
    assert parse_qs(parts.query, keep_blank_values=True) == {"k": [key], "z": ["1"]}
    assert unquote(parts.fragment) == str(name)
