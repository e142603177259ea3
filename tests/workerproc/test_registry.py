"""An application is imported as `python -m` would, and what is wrong with it is told apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.workerproc.context import Context
from jobctl.workerproc.errors import DeclarationError
from jobctl.workerproc.job import Job, job
from jobctl.workerproc.registry import Registry, registry

LOADER = """
import sys
from jobctl.workerproc.registry import load_app
try:
    print(*load_app(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error, "cause:", type(error.__cause__).__name__)
"""

APP = """
import jobctl

@jobctl.job
def {name}(ctx):
    return 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "jobs.py").write_text(APP.format(name="send"))
    (shop / "cron.py").write_text("import shop.jobs\n" + APP.format(name="sweep"))
    (shop / "needs.py").write_text("import not_installed_anywhere\n")
    (shop / "needs_part.py").write_text("import shop.not_there\n")
    (shop / "broken.py").write_text("1 / 0\n")
    (shop / "syntax.py").write_text("def (:\n")
    (shop / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    return tmp_path


def load(folder: Path, app: str) -> str:
    """In a process of its own: what an import does stays there."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADER, app],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout.strip() or done.stderr


def test_importing_declares(folder: Path) -> None:
    """From the working directory; several modules, with what they import."""
    assert load(folder, "shop.jobs") == "send"
    assert load(folder, "shop.cron") == "send sweep"
    assert load(folder, " shop.jobs , shop.cron ") == "send sweep"


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("nowhere", ["AppNotFound", "no module nowhere"]),
        ("nowhere.jobs", ["AppNotFound", "no module nowhere, so nowhere.jobs"]),
        ("shop.nothing", ["AppNotFound", "no module shop.nothing"]),
        ("shop.jobs.more", ["AppNotFound", "shop.jobs"]),
        ("shop/jobs.py", ["AppNotFound", "did you mean shop.jobs?"]),
        ("shop.jobs:app", ["AppNotFound", "not the name of a module"]),
        ("", ["AppNotFound", "no application is named"]),
        (" , ", ["AppNotFound", "no application is named"]),
        ("shop.needs", ["AppError", "'not_installed_anywhere'", "cause: ModuleNotFoundError"]),
        ("shop.needs_part", ["AppError", "'shop.not_there'"]),
        ("shop.broken", ["AppError", "ZeroDivisionError: division by zero"]),
        ("shop.syntax", ["AppError", "SyntaxError", "syntax.py"]),
        ("shop.leaves", ["AppError", "SystemExit: 3"]),
    ],
)
def test_what_is_wrong_with_an_application(folder: Path, app: str, said: list[str]) -> None:
    """Not there, or there and broken: whoever is called at night sees which."""
    sentence = load(folder, app)
    for words in said:
        assert words in sentence


def test_the_same_module_by_two_names(folder: Path) -> None:
    """Run as __main__ and imported: one function, one type."""
    (folder / "main.py").write_text(
        APP.format(name="send")
        + "\nif __name__ == '__main__':\n    import main\n    print('fine')\n"
    )
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "fine\n", done.stderr


def test_two_functions_of_one_name(folder: Path) -> None:
    """The sentence names both places and the way out."""
    (folder / "shop" / "more.py").write_text("import shop.jobs\n" + APP.format(name="send"))
    sentence = load(folder, "shop.more")
    for words in ("shop.jobs.send", "shop.more.send", "jobs.py:", "more.py:", "name=..."):
        assert words in sentence


def declared(handler: object) -> Job[..., object]:
    found = registry.get("test_registry_twice")
    assert found is not None
    assert found.handler is handler
    return found


def test_a_module_that_is_loaded_again_takes_its_own_place() -> None:
    """importlib.reload, or an import that failed half-way and was repeated."""

    def declare(result: int) -> Job[[], int]:
        @job(name="test_registry_twice")
        def again(ctx: Context) -> int:
            return result

        return again

    declare(1)
    second = declare(2)
    assert declared(second.handler) is second


def test_a_registry_of_types() -> None:
    """What the template tells the supervisor: all types, by name."""

    @job(name="test_registry_b")
    def b(ctx: Context) -> None: ...

    @job(name="test_registry_a")
    def a(ctx: Context) -> None: ...

    alone = Registry()
    alone.register(b)
    alone.register(a)
    assert [kind.name for kind in alone.types()] == ["test_registry_a", "test_registry_b"]
    assert list(alone) == ["test_registry_a", "test_registry_b"]
    assert len(alone) == 2
    assert "test_registry_a" in alone
    assert alone.get("test_registry_a") is a
    assert alone.get("other") is None
    with pytest.raises(DeclarationError, match="two functions"):

        @job(name="test_registry_a")
        def c(ctx: Context) -> None: ...
