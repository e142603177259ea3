"""Every setting of jobctl, once.

The table below is all there is: flags, JOBCTL_ names, keys of `jobctl.toml`, the help and the
README's table are derived from it. A setting stands here only if it does something. Durations are
seconds. How values are found (flag, then environment, then file, then default) is in
`settings_sources.py`.
"""

# ruff: noqa: RUF009 - `_setting` is dataclasses.field() with our words, not a shared default

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jobctl.store.embedded import default_root
from jobctl.supervisor import setting_kinds as kinds
from jobctl.supervisor.folders import runtime_folder
from jobctl.supervisor.setting_kinds import MOST_SLOTS, Address, Kind

Environ = Mapping[str, str]

ENVIRONMENT_PREFIX = "JOBCTL_"


@dataclass(frozen=True)
class Setting:
    """What is known about one setting, beside its name."""

    name: str
    kind: Kind
    help: str
    default: Callable[[Environ], Any]
    default_words: str | None
    secret: bool

    @property
    def flag(self) -> str:
        """`--drain-timeout`; a switch can also be turned off, with `--no-` before its name."""
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        """`JOBCTL_DRAIN_TIMEOUT`."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    def show(self, value: Any) -> str:
        """The value as its owner would type it; nothing for one that is not set."""
        return self.kind.show(value)

    @property
    def default_text(self) -> str:
        """The default as documentation shows it: the same on every machine."""
        return self.default_words if self.default_words is not None else self.show(self.default({}))


def _setting(
    kind: Kind,
    default: Any,
    help: str,
    *,
    default_words: str | None = None,
    secret: bool = False,
) -> Any:
    find = default if callable(default) else lambda environ: default
    return field(
        default_factory=lambda: find(os.environ),
        metadata={"setting": (kind, help, find, default_words, secret)},
    )


def _credential(environ: Environ) -> Path | None:
    """What systemd's LoadCredential=dsn:... has put there for this service alone."""
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    file = Path(folder, "dsn")
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None  # it loads others
    except OSError:
        pass  # a reload may not read it, and need not; whoever must will hear of it
    return file


def _cores(environ: Environ) -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Settings:
    """The values that one process runs with. Durations are seconds."""

    app: str | None = _setting(
        kinds.MODULE, None, "Module that is imported in every slot and defines the jobs.",
        default_words="none",
    )  # fmt: skip
    dsn: str | None = _setting(
        kinds.TEXT,
        None,
        "PostgreSQL, as a URL or as key=value words. A password in it is seen in the list of "
        "processes if it is given as a flag: prefer the environment or dsn_file.",
        default_words="`DATABASE_URL`, then `PG*`, then the embedded PostgreSQL",
        secret=True,
    )
    dsn_file: Path | None = _setting(
        kinds.PATH,
        _credential,
        "File whose first line is the DSN.",
        default_words="`$CREDENTIALS_DIRECTORY/dsn`, if systemd has loaded one",
    )
    schema: str = _setting(kinds.SCHEMA, "jobctl", "Schema that holds jobctl's tables.")
    state_dir: Path = _setting(
        kinds.PATH,
        default_root,
        "Folder of the embedded PostgreSQL.",
        default_words="`/var/lib/jobctl/pg` for root, else `~/.local/state/jobctl/pg`",
    )
    host: str = _setting(
        kinds.TEXT,
        lambda environ: socket.gethostname(),
        "Name of this host in the database, the logs and the metrics.",
        default_words="the host's name",
    )
    slots: int = _setting(
        kinds.count(1, MOST_SLOTS),
        _cores,
        "How many jobs run at once.",
        default_words="number of cores",
    )
    queues: tuple[str, ...] | None = _setting(kinds.NAMES, None, "Queues to take jobs from.")
    preload: bool = _setting(
        kinds.SWITCH, True, "Import the app once and fork slots from it; else in each slot."
    )
    lease: float = _setting(
        kinds.duration(2, 3600),
        60.0,
        "How long jobs stay with a host that has gone silent, before others run them.",
    )
    drain_timeout: float = _setting(
        kinds.duration(0),
        300.0,
        "How long running jobs may go on at a stop before they are interrupted and queued again.",
    )
    kill_grace: float = _setting(
        kinds.duration(0, 3600),
        5.0,
        "How long what must end has between being asked to and being killed.",
    )
    boot_timeout: float = _setting(
        kinds.duration(1, 3600), 60.0, "How long a slot may take to import the app and be ready."
    )
    max_jobs_per_slot: int | None = _setting(
        kinds.count(1, 10**9),
        None,
        "A slot's process is replaced after so many jobs, give or take a tenth.",
        default_words="none",
    )
    max_rss_per_slot: int | None = _setting(
        kinds.size(16 * 2**20),
        None,
        "A slot whose process has come to hold more memory is replaced when its job has ended.",
        default_words="none",
    )
    max_reserve: int = _setting(
        kinds.count(0, 10_000),
        200,
        "Most jobs claimed beyond the free slots, while jobs are short.",
    )
    history_keep: float = _setting(
        kinds.duration(86400), 7 * 86400.0, "How long finished jobs are kept."
    )
    effect_keep: float = _setting(
        kinds.duration(86400),
        90 * 86400.0,
        "How long it is remembered that an effect was had, after anything was written of it last.",
    )
    metrics_listen: Address | None = _setting(
        kinds.ADDRESS,
        Address("127.0.0.1", 9464),
        "Where /metrics, /livez and /readyz are served; off serves none.",
    )
    runtime_dir: Path = _setting(
        kinds.PATH,
        runtime_folder,
        "Folder of the control socket.",
        default_words="`$RUNTIME_DIRECTORY`, `$XDG_RUNTIME_DIR/jobctl`, `/run/jobctl`, or a "
        "private folder under the temporary one",
    )
    log_format: str = _setting(
        kinds.choice("auto", "text", "logfmt", "json", "journald"),
        "auto",
        "How log lines look: auto is journald under systemd, text on a terminal, else JSON.",
    )
    log_level: str = _setting(
        kinds.choice("debug", "info", "warning", "error"),
        "info",
        "What is logged; what an application logs comes at the level that it has set itself.",
    )
    log_attempts: str = _setting(
        kinds.choice("all", "unsuccessful"),
        "all",
        "Whether attempts that succeed have a line too; never more than 100 a second.",
    )


def _read_table() -> dict[str, Setting]:
    table = {}
    for entry in fields(Settings):
        kind, help_, default, words, secret = entry.metadata["setting"]
        table[entry.name] = Setting(entry.name, kind, help_, default, words, secret)
    return table


#: Name to setting, in the order of the table.
TABLE: Mapping[str, Setting] = _read_table()


def markdown_table() -> str:
    """The README's table of settings."""
    lines = [
        "| `jobctl.toml` | flag | environment | default | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for setting in TABLE.values():
        flag = f"`{setting.flag}`"
        if setting.kind.is_switch:
            flag += f", `--no-{setting.flag[2:]}`"
        default = setting.default_text
        if setting.default_words is None:
            default = f"`{default}`"
        words = f"{setting.help} {setting.kind.note}".strip()
        lines.append(
            f"| `{setting.name}` | {flag} | `{setting.environment}` | {default} | {words} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")  # noqa: T201 - that is what it is run for
