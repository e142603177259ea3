"""Importing the app, and saying why it could not be imported.

The same in the template and in a slot that imports for itself.
"""

from __future__ import annotations

from typing import Any

from jobctl.workerproc import launch
from jobctl.workerproc.errors import AppNotFound
from jobctl.workerproc.failure import describe
from jobctl.workerproc.registry import Registry, load_app


class LoadError(Exception):
    """The app could not be imported. `body` is that of a FAILED frame; all of it can be stored."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body["message"])
        self.body = body

    @property
    def exit_code(self) -> int:
        """What the process should leave with."""
        return launch.EXIT_CONFIGURATION if self.body["missing_app"] else launch.EXIT_FAILED


def load(app: str) -> Registry:
    """Imports the app. Raises LoadError, whatever the app raised: SystemExit too."""
    try:
        return load_app(app)
    except BaseException as error:  # an import may raise anything
        failure = describe(error)
        raise LoadError(
            {
                "class": failure.error_class,
                "message": failure.error,
                "stack": failure.stack,
                "missing_app": isinstance(error, AppNotFound),
            }
        ) from error
