"""`jobctl top` on a real terminal: it works at 80 by 24, and gives it back as it was."""

from __future__ import annotations

import re
import shlex
import signal

import pytest

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.cli.terminals import JOBCTL, Terminal, environment, on_a_terminal
from tests.proxy import Proxy, Wire
from tests.store.standing import put, put_session
from tests.waiting import until

ENTERED, LEFT = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def _frames(screen: str) -> list[list[str]]:
    """What was drawn, frame by frame, without what only moves and paints."""
    drawn = screen.split("\x1b[H")[1:]
    return [re.sub(r"\x1b\[[\d?]*[A-Za-z]|\r", "", one).split("\n") for one in drawn]


def _shows(terminal: Terminal, text: str) -> None:
    terminal.read_until(text)


def test_it_shows_the_fleet_within_80_by_24(database: str, connection: Connection) -> None:
    """And anew when something changes, and when the window does."""
    put_session(connection, 1, "alpha", leader=True, busy=1, types=["send"])
    job = put(connection, "running", type="slow")
    environ = environment(database)
    with on_a_terminal(["top", "--every", "0.5s"], environ, size=(80, 24)) as (terminal, process):
        _shows(terminal, f"#{job}")
        _shows(terminal, "q quit")
        frame = _frames(terminal.screen)[-1]
        assert len(frame) == 24
        assert max(map(len, frame)) <= 80
        put(connection, queue="reports")
        _shows(terminal, "reports")
        terminal.screen = ""
        terminal.resize(60, 10)
        until(lambda: _draws(terminal, 10), what="a frame of the new size")
        assert max(map(len, _frames(terminal.screen)[-1])) <= 60
        terminal.type("q")
        assert terminal.ended(process) == 0


def _draws(terminal: Terminal, lines: int) -> bool:
    terminal.read_until("q quit")
    if any(len(frame) == lines for frame in _frames(terminal.screen)):
        return True
    terminal.screen = ""
    return False


@pytest.mark.parametrize("how", ["q", "ctrl-c", "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_terminal_is_left_as_it_was(database: str, how: str) -> None:
    """Echo, lines, cursor and screen, whatever ended it; and a signal's end is that signal's."""
    environ = environment(database)
    with on_a_terminal(["top"], environ, keep_open=True) as (terminal, process):
        before = terminal.attributes()
        _shows(terminal, "q quit")
        assert terminal.screen.startswith(ENTERED)
        assert terminal.attributes() != before
        match how:
            case "q":
                terminal.type("q")
            case "ctrl-c":
                terminal.type("\x03")
            case _:
                process.send_signal(signal.Signals[how])
        code = terminal.ended(process)
        expected = {"q": 0, "ctrl-c": 130, "SIGINT": 130}
        assert code == expected.get(how, None if how in expected else -signal.Signals[how])
        _shows(terminal, LEFT)
        assert terminal.attributes() == before
        assert terminal.screen.rstrip().endswith(LEFT), terminal.screen[-200:]


def test_ctrl_z_gives_the_terminal_back_until_fg(database: str) -> None:
    """Under a shell: stopped, it has left the screen; continued, it is drawn again."""
    shell = ["bash", "--norc", "--noediting", "-i"]
    environ = environment(database, PS1="$ ")
    with on_a_terminal([], environ, program=shell) as (terminal, process):
        terminal.type(f"{shlex.join(JOBCTL)} top\n")
        _shows(terminal, "q quit")
        terminal.type("\x1a")
        _shows(terminal, LEFT)
        _shows(terminal, "Stopped")
        terminal.screen = ""
        terminal.type("fg\n")
        _shows(terminal, ENTERED)
        _shows(terminal, "q quit")
        terminal.screen = ""
        terminal.type("q")
        _shows(terminal, LEFT)
        _shows(terminal, "$ ")  # the shell's again: what is typed before that is top's
        terminal.type("exit 7\n")
        assert terminal.ended(process) == 7


def test_a_key_is_heard_while_the_database_is_not(database: str) -> None:
    """What was read last stays, and it can be left."""
    with Proxy.to(database) as proxy:
        environ = environment(proxy.dsn)
        with on_a_terminal(["top", "--every", "0.5s"], environ) as (terminal, process):
            _shows(terminal, "No supervisor is running")
            proxy.wire = Wire.BLACK_HOLE
            terminal.type(" ")
            terminal.type("q")
            assert terminal.ended(process) == 0


def test_a_database_that_comes_back_is_found(database: str) -> None:
    """It is said when it is away, and the screen goes on afterwards."""
    with Proxy.to(database) as proxy:
        environ = environment(proxy.dsn)
        with on_a_terminal(["top", "--every", "0.5s"], environ, size=(120, 24)) as (
            terminal,
            process,
        ):
            _shows(terminal, "No supervisor is running")
            proxy.cut()
            _shows(terminal, "!! The connection to PostgreSQL was lost")
            terminal.screen = ""
            _shows(terminal, "No supervisor is running")
            terminal.type("q")
            assert terminal.ended(process) == 0


def test_without_a_terminal_it_says_what_to_use(cli: Cli) -> None:
    """In a pipe, under cron, on a dumb terminal: 2, and nothing is drawn."""
    ran = cli("top")
    assert ran.code == 2
    assert "status --watch" in ran.err
    assert ran.out == ""


def test_a_dumb_terminal_gets_no_escape_codes(database: str) -> None:
    environ = environment(database, TERM="dumb")
    with on_a_terminal(["top"], environ) as (terminal, process):
        _shows(terminal, "needs a terminal")
        assert terminal.ended(process) == 2
        assert "\x1b" not in terminal.screen
