"""`jobctl config`: which settings count, and where they come from."""

from __future__ import annotations

from typing import Any

import click

from jobctl.cli.nouns import Noun
from jobctl.cli.options import settings_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.store.dsn import masked
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.settings_sources import Loaded


@click.group(cls=Noun)
def config() -> None:
    """The settings."""


@config.command()
@settings_options(*TABLE)
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@output_option
def show(loaded: Loaded, origin: bool, output: Output) -> None:
    """Print the settings as `jobctl run` would see them here."""
    rows = [_row(loaded, name) for name in TABLE]
    if output.format in ("json", "jsonl"):
        facts: dict[str, Any] = {
            row["name"]: {"value": row["value"], "origin": row["origin"]}
            if origin
            else row["value"]
            for row in rows
        }
        output.one(facts, name="", text=str)
        return
    titles = ["SETTING", "VALUE", *(["ORIGIN"] if origin else [])]

    def cells(row: Row) -> list[object]:
        return [row["name"], row["shown"], *([row["origin"]] if origin else [])]

    output.rows(rows, name="name", titles=titles, cells=cells)
    if loaded.file is not None:
        say(f"Settings file: {loaded.file}")


def _row(loaded: Loaded, name: str) -> dict[str, Any]:
    setting = TABLE[name]
    value = getattr(loaded.settings, name)
    if setting.secret and value is not None:
        value = shown = masked(value)
    else:
        shown = setting.show(value)
    plain = isinstance(value, str | int | float | bool | tuple | None)
    return {
        "name": name,
        "value": value if plain and name != "metrics_listen" else shown,
        "shown": shown,
        "origin": loaded.origins[name],
    }
