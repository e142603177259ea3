"""A group of commands, which suggests the one that was meant when another was typed."""

from __future__ import annotations

import difflib

import click


class Noun(click.Group):
    """What `jobctl` itself is, and `jobctl jobs` and its like."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were defined: a story, not an alphabet."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with a suggestion."""
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
            ctx.fail(
                f"There is no command {word!r} here. Did you mean {close[0]}?"
                if close
                else f"There is no command {word!r} here; there are: {', '.join(known)}."
            )
        return super().resolve_command(ctx, args)
