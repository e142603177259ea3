"""`jobctl explain`: the sentence, the advice, and both ways to ask."""

from __future__ import annotations

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put


def test_in_words_and_in_json(cli: Cli, connection: Connection) -> None:
    """A cause for programs, a sentence and a command for people."""
    job = put(connection)
    for words in (("explain",), ("jobs", "explain")):
        ran = cli(*words, job)
        assert ran.code == 0
        assert ran.out == (
            f"#{job} send is queued: no supervisor is running.\n"
            "What to do: start one: jobctl run --app MODULE.\n"
        )
    facts = cli("explain", job, "--json").json
    assert (facts["id"], facts["state"], facts["cause"]) == (job, "queued", "no_host")
    assert cli("explain", job, "-o", "name").out == "no_host\n"


def test_a_number_that_nothing_has(cli: Cli) -> None:
    """4, and where it may have gone."""
    ran = cli("explain", 4711)
    assert ran.code == 4
    assert "history_keep" in ran.err


def test_what_a_stranger_wrote_does_not_reach_the_terminal(
    cli: Cli, connection: Connection
) -> None:
    """An escape sequence in an error is shown, not obeyed."""
    job = put(connection, "dead", last_error="\x1b[2Jgone")
    assert "\x1b" not in cli("explain", job).out
