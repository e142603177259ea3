"""How the value of each setting is found: flag, then environment, then file, then default.

The rule: whoever mistyped something learns everything that is wrong at once, each with where it
stands, what it says and what is accepted there. Nothing is guessed, and a secret is never shown.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.store.dsn import DsnError, resolve
from jobctl.store.errors import JobctlError
from jobctl.supervisor.setting_kinds import MOST_SLOTS, Refused
from jobctl.supervisor.settings import ENVIRONMENT_PREFIX, TABLE, Environ, Setting, Settings

if TYPE_CHECKING:
    from jobctl.store.cron_spec import CronSpec
    from jobctl.supervisor.pool_spec import PoolSpec

CONFIG_VARIABLE = "JOBCTL_CONFIG"
DATABASE_URL = "DATABASE_URL"
#: The first of these that exists is read, unless a file is named.
USUAL_FILES = (Path("jobctl.toml"), Path("/etc/jobctl/jobctl.toml"))
#: Variables with our prefix that are no settings, but mean something elsewhere.
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE})
#: A key that nobody knows is taken for a typing error if it is this similar to one that exists.
SIMILAR = 0.75


class SettingsError(JobctlError):
    """What is wrong with the settings; a sentence or two for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Loaded:
    """Settings, where each came from (`--lease`, `JOBCTL_LEASE`, a file's path, `default`), the
    file that was read, and the crons and pools in it."""

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None
    crons: tuple[CronSpec, ...] = ()
    pools: tuple[PoolSpec, ...] = ()


@dataclass(frozen=True)
class _Found:
    value: Any
    origin: str
    rank: int


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Environ | None = None,
    config: str | Path | None = None,
) -> Loaded:
    """`flags` are texts (or booleans of switches) by the setting's name; None means not given.

    Raises SettingsError with all problems.
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    file = _choose_file(config, environ, problems)
    found: dict[str, _Found] = {}
    crons, pools = _read_file(file, found, problems)
    _read_environment(environ, found, problems)
    _read_flags(flags or {}, found, problems)
    _choose_dsn(found, environ, problems)
    if problems:
        raise SettingsError(problems)
    values = {
        name: found[name].value if name in found else setting.default(environ)
        for name, setting in TABLE.items()
    }
    origins = {name: found[name].origin if name in found else "default" for name in TABLE}
    slots = values["slots"] + sum(pool.slots for pool in pools)
    if slots > MOST_SLOTS:
        raise SettingsError(
            [f"The pools of this host have {slots} slots together; it can have {MOST_SLOTS}."]
        )
    return Loaded(Settings(**values), origins, file, crons, pools)


def find_dsn(settings: Settings, environ: Environ | None = None) -> str | None:
    """The DSN to connect with; "" when libpq's own variables name the server; None when nothing
    names one, so that it is the embedded PostgreSQL's. Raises DsnError."""
    environ = os.environ if environ is None else environ
    # What the environment says about our settings is in them already, in its proper rank.
    rest = {
        name: value
        for name, value in environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) and name != DATABASE_URL
    }
    return resolve(settings.dsn, settings.dsn_file, rest)


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean slots?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""


def _choose_file(config: str | Path | None, environ: Environ, problems: list[str]) -> Path | None:
    named = config or environ.get(CONFIG_VARIABLE)
    if not named:
        return next((file for file in USUAL_FILES if file.exists()), None)
    file = Path(os.path.expanduser(named))  # noqa: PTH111 - raises nothing for who has no home
    if not file.exists():
        by = "--config" if config else CONFIG_VARIABLE
        problems.append(f"{by} names {file}, and there is no such file.")
        return None
    return file


def _read_file(
    file: Path | None, found: dict[str, _Found], problems: list[str]
) -> tuple[tuple[CronSpec, ...], tuple[PoolSpec, ...]]:
    if file is None:
        return (), ()
    if not file.is_file():
        problems.append(f"{file} is not a file.")
        return (), ()
    try:
        entries = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{file} cannot be read: {error.strerror}.")
        return (), ()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{file} is not TOML: {error}.")
        return (), ()
    crons = _read_crons(file, entries.pop("cron", []), problems)
    pools = _read_pools(file, entries.pop("pool", []), problems)
    for key, value in entries.items():
        setting = TABLE.get(key)
        if setting is None:
            hint = suggestion(key, TABLE)
            problems.append(f"{file}: there is no setting {key}.{hint}")
            continue
        try:
            found[key] = _Found(setting.kind.from_file(value), str(file), rank=1)
        except Refused as refused:
            problems.append(_sentence(f"{file}: {key} = ", setting, value, refused))
    return crons, pools


def _read_crons(file: Path, tables: object, problems: list[str]) -> tuple[CronSpec, ...]:
    """`[[cron]]`: not a setting, because no flag and no variable could say it."""
    if tables == []:
        return ()
    from jobctl.store.cron_spec import CronSpec  # few files have any

    if not isinstance(tables, list):
        problems.append(f"{file}: crons are written below [[cron]], one each.")
        return ()
    crons: dict[str, CronSpec] = {}
    for table in tables:
        try:
            spec = CronSpec.from_words(table, "file")
        except (ValueError, TypeError) as error:
            problems.append(f"{file}: [[cron]]: {error}.")
            continue
        if spec.name in crons:
            problems.append(f"{file}: there are two crons called {spec.name}.")
        crons[spec.name] = spec
    return tuple(crons.values())


def _read_pools(file: Path, tables: object, problems: list[str]) -> tuple[PoolSpec, ...]:
    """`[[pool]]`: not a setting either."""
    if tables == []:
        return ()
    from jobctl.supervisor.pool_spec import PoolSpec  # few files have any

    if not isinstance(tables, list):
        problems.append(f"{file}: pools are written below [[pool]], one each.")
        return ()
    pools: dict[str, PoolSpec] = {}
    for table in tables:
        try:
            spec = PoolSpec.from_words(table)
        except ValueError as error:
            name = table.get("name") if isinstance(table, dict) else None
            which = f" {name}" if isinstance(name, str) and name else ""
            problems.append(f"{file}: [[pool]]{which}: {error}.")
            continue
        if spec.name in pools:
            problems.append(f"{file}: there are two pools called {spec.name}.")
        pools[spec.name] = spec
    return tuple(pools.values())


def _read_environment(environ: Environ, found: dict[str, _Found], problems: list[str]) -> None:
    names = {setting.environment: setting for setting in TABLE.values()}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        setting = names.get(variable)
        if setting is None:
            # Others may use the prefix; only what looks like a slip of ours is one.
            if difflib.get_close_matches(variable, names, n=1, cutoff=_cutoff(variable)):
                hint = suggestion(variable, names)
                problems.append(f"The environment: there is no setting {variable}.{hint}")
            continue
        if not text.strip():
            continue  # `JOBCTL_DSN=` is how compose files and units say "not set"
        try:
            found[setting.name] = _Found(setting.kind.parse(text), variable, rank=2)
        except Refused as refused:
            problems.append(_sentence(f"{variable}=", setting, text, refused))


def _cutoff(variable: str) -> float:
    """`SIMILAR`, raised for the prefix that all names share."""
    shared = len(ENVIRONMENT_PREFIX)
    return (shared + SIMILAR * (len(variable) - shared)) / len(variable)


def _read_flags(flags: Mapping[str, Any], found: dict[str, _Found], problems: list[str]) -> None:
    for name, given in flags.items():
        if given is None:
            continue
        setting = TABLE[name]
        try:
            found[name] = _Found(setting.kind.parse(given), setting.flag, rank=3)
        except Refused as refused:
            problems.append(_sentence(f"{setting.flag} ", setting, given, refused))


def _choose_dsn(found: dict[str, _Found], environ: Environ, problems: list[str]) -> None:
    """dsn and dsn_file are two ways to say one thing: the one that comes first wins."""
    dsn, file = found.get("dsn"), found.get("dsn_file")
    if dsn and file:
        if dsn.rank == file.rank:
            problems.append(
                f"{dsn.origin} and {file.origin}: both dsn and dsn_file are set; keep one."
            )
        del found["dsn_file" if dsn.rank > file.rank else "dsn"]
    elif not dsn and not file and TABLE["dsn_file"].default(environ) is None:
        try:
            url = resolve(None, None, {DATABASE_URL: environ.get(DATABASE_URL, "")})
        except DsnError as error:
            problems.append(f"{DATABASE_URL}: {error}")
        else:
            if url:
                found["dsn"] = _Found(url, DATABASE_URL, rank=0)


def _sentence(where: str, setting: Setting, value: object, refused: Refused) -> str:
    shown = "(not shown)" if setting.secret else str(value)
    why = f": {refused}" if str(refused) else ""
    return f"{where}{shown} cannot be used{why}. {setting.name} accepts {setting.kind.accepts}."
