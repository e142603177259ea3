"""What is built is what is here: nothing is left behind, and no link points out of it.

The packages are links in the working copy. A checkout without links, or a build backend that
does not follow them, makes a wheel without the packages and says nothing.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]

LINKS = {
    "src/jobctl/store": "../../store",
    "src/jobctl/supervisor": "../../supervisor",
    "src/jobctl/workerproc": "../../workerproc",
    "src/jobctl/assets/systemd": "../../../systemd",
    "src/jobctl/assets/grafana": "../../../grafana",
}

# Nobody adds a folder to the top without changing the picture in the README.
FOLDERS = {
    ".ci",
    "examples",
    "grafana",
    "src",
    "store",
    "supervisor",
    "systemd",
    "tests",
    "workerproc",
}

MADE_HERE = shutil.ignore_patterns(
    ".git",
    ".venv*",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    "*.pyc",
    ".*_cache",
    ".hypothesis",
    "node_modules",
)

IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import jobctl
for module in pkgutil.walk_packages(jobctl.__path__, "jobctl."):
    if not module.name.endswith("__main__"):
        loaded = importlib.import_module(module.name)
        assert loaded.__file__.startswith(sys.argv[1]), loaded.__file__
for name in ("store", "supervisor", "workerproc"):
    assert importlib.util.find_spec(name) is None, f"{name} leaks out of jobctl"
"""


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist of this tree, and the wheel that was built from that sdist."""
    place = tmp_path_factory.mktemp("artefacts")
    tree = place / "tree"
    shutil.copytree(HERE, tree, symlinks=True, ignore=MADE_HERE)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", tree],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert built.returncode == 0, built.stdout
    return place / "dist"


@pytest.fixture(scope="module")
def wheel(artefacts: Path) -> Path:
    return next(artefacts.glob("pgjobctl-*.whl"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(wheel, place, "zip")
    return place


def _product() -> set[str]:
    """Every file of the import package, by its path in it, links followed; the README's pictures
    are none."""
    source = HERE / "src" / "jobctl"
    found: set[str] = set()
    folders = [source]
    while folders:
        for path in folders.pop().iterdir():
            if path.is_dir():  # also through a link
                if path.name not in ("__pycache__", "pictures"):
                    folders.append(path)
            elif path.suffix != ".pyc":
                found.add(path.relative_to(source.parent).as_posix())
    return found


def test_the_wheel_holds_every_file_of_the_product(unpacked: Path) -> None:
    """Each module, SQL file, unit and dashboard that is here, and nothing that is not."""
    packed = {
        path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()
    }
    beside = (".dist-info/", ".data/")
    assert {path for path in packed if not any(one in path for one in beside)} == _product()


@pytest.mark.parametrize(
    "kind",
    [
        "jobctl/py.typed",
        "jobctl/store/__init__.py",
        "jobctl/workerproc/__init__.py",
        "jobctl/supervisor/__init__.py",
        "jobctl/cli/__init__.py",
        "jobctl/store/sql/*.sql",
        "jobctl/store/migrations/0001_*.sql",
        "jobctl/store/functions/*.sql",
        "jobctl/assets/systemd/*.service",
        "jobctl/assets/grafana/*",
    ],
)
def test_the_wheel_holds_each_kind_of_thing(unpacked: Path, kind: str) -> None:
    """A tree that lost a whole folder would agree with a wheel that lacks it too."""
    assert list(unpacked.glob(kind))


def test_the_wheel_brings_its_manual_page_to_where_man_looks(unpacked: Path) -> None:
    """share/man beside the bin of whatever it is installed into."""
    (page,) = unpacked.glob("pgjobctl-*.data/data/share/man/man1/jobctl.1")
    assert page.read_text() == (HERE / "src/jobctl/assets/man/jobctl.1").read_text()


def test_the_wheel_has_no_links(wheel: Path) -> None:
    """A link would point to where the wheel was built."""
    with zipfile.ZipFile(wheel) as archive:
        links = [i.filename for i in archive.infolist() if stat.S_ISLNK(i.external_attr >> 16)]
    assert links == []


def test_the_wheel_says_what_it_is(unpacked: Path) -> None:
    """The command, the licence and the optional server."""
    info = next(unpacked.glob("pgjobctl-*.dist-info"))
    assert "jobctl = jobctl.cli:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "License-Expression: MIT" in metadata
    assert "Provides-Extra: embedded" in metadata
    assert (info / "licenses" / "LICENSE").is_file()


def test_every_module_of_the_wheel_imports(unpacked: Path) -> None:
    """From the wheel alone, without this tree; and `import store` finds nothing of ours."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_ALL, unpacked],
        cwd=unpacked.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_sdist_is_whole_and_has_no_links(artefacts: Path) -> None:
    """Whoever builds from it has the same product, and the tests to check it."""
    with tarfile.open(next(artefacts.glob("pgjobctl-*.tar.gz"))) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    names = {member.name.split("/", 1)[1] for member in members if member.isfile()}
    assert {f"src/{path}" for path in _product()} <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= names
    assert "tests/conftest.py" in names


def test_the_top_of_the_repository_is_as_drawn() -> None:
    """The folders, and the links that make one import name of them."""
    tracked = _tracked()
    assert {path.split("/")[0] for path in tracked if "/" in path} == FOLDERS
    for link, target in LINKS.items():
        assert (HERE / link).is_symlink(), f"{link} is no link: does git make them here?"
        assert str((HERE / link).readlink()) == target
    links = {path for path in tracked if (HERE / path).is_symlink()}
    assert links == set(LINKS)


def _tracked() -> list[str]:
    if not (HERE / ".git").exists():
        pytest.skip("not a git working copy")
    # safe.directory: the tests may run as another user than the one who cloned.
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={HERE}", "ls-files"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.splitlines()
