"""The job types and crons of an application: what its import has declared, by name.

One registry a process, filled by decorators while the application's modules are imported. It knows
nothing of queues or claims.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.store.cron_spec import CronSpec
from jobctl.store.job_type import JobType
from jobctl.workerproc.errors import AppError, AppNotFound, DeclarationError

if TYPE_CHECKING:
    from jobctl.workerproc.job import Job


class Registry:
    """Declared jobs by the name of their type."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job[Any, Any]] = {}
        self._crons: dict[str, tuple[CronSpec, Any]] = {}  # with the handler

    def register(self, job: Job[Any, Any]) -> None:
        """Adds a job. Raises DeclarationError when another function has that name.

        The same function declared again (its module was reloaded, or run as __main__ and imported)
        takes its own place.
        """
        name = job.job_type.name
        known = self._jobs.get(name)
        if known is not None and not _same_function(known.handler, job.handler):
            raise DeclarationError(
                f"two functions declare the job type {name!r}: {_where(known.handler)} and "
                f"{_where(job.handler)}. Give one of them another name: @jobctl.job(name=...)"
            )
        self._jobs[name] = job

    def register_cron(self, spec: CronSpec, handler: Any) -> None:
        """Adds a cron of this handler's. Raises DeclarationError when another has that name."""
        known = self._crons.get(spec.name)
        # The same line of the same function, imported again, is no second one.
        if known is not None and not (
            _same_function(known[1], handler) and (known[1] is not handler or known[0] == spec)
        ):
            raise DeclarationError(
                f"two crons are called {spec.name!r}: one of {_where(known[1])} and one of "
                f"{_where(handler)}. Give one of them another name: @jobctl.cron(..., name=...)"
            )
        self._crons[spec.name] = (spec, handler)

    def get(self, name: str) -> Job[Any, Any] | None:
        """The job declared under this name, or None."""
        return self._jobs.get(name)

    def types(self) -> list[JobType]:
        """All types, by name."""
        return [self._jobs[name].job_type for name in sorted(self._jobs)]

    def crons(self) -> list[CronSpec]:
        """All crons, by name."""
        return [self._crons[name][0] for name in sorted(self._crons)]

    def declared(self) -> dict[str, Any]:
        """Types and crons as they travel to the supervisor."""
        return {
            "types": [kind.to_dict() for kind in self.types()],
            "crons": [spec.to_dict() for spec in self.crons()],
        }

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._jobs))

    def __len__(self) -> int:
        return len(self._jobs)


#: The registry of this process.
registry = Registry()


def load_app(app: str) -> Registry:
    """Imports the application and returns what it declared.

    `app` is a module's name, or several with commas between. The working directory comes first on
    the path, as with `python -m`. Raises AppNotFound when a module does not exist, AppError with
    the cause when one exists and its import fails.
    """
    modules = [name.strip() for name in app.split(",") if name.strip()]
    if not modules:
        raise AppNotFound("no application is named: give its module, such as --app shop.jobs")
    _put_first(str(Path.cwd()))
    for name in modules:
        _import(name)
    return registry


def _import(name: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")):
        hint = ""
        if name.endswith(".py") or "/" in name:
            module = name.removesuffix(".py").strip("./").replace("/", ".")
            hint = f"; did you mean {module}?"
        raise AppNotFound(
            f"{name!r} is not the name of a module, such as shop.jobs{hint}", name=name
        )
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(_not_found(name, error.name), name=error.name) from error
        raise AppError(f"the application {name} needs a module that is missing: {error}") from error
    except (Exception, SystemExit) as error:  # an import may raise anything, sys.exit() included
        kind = type(error).__name__
        raise AppError(f"the application {name} could not be imported: {kind}: {error}") from error


def _not_found(name: str, missing: str) -> str:
    what = f"there is no module {missing}"
    if missing != name:
        what += f", so {name} cannot be imported"
    return (
        f"{what}; it was looked for in {Path.cwd()} and where Python finds its packages. Start "
        "jobctl in the application's folder, or install the application"
    )


def _put_first(folder: str) -> None:
    if not sys.path or sys.path[0] not in ("", folder):
        sys.path.insert(0, folder)


def _same_function(one: Any, other: Any) -> bool:
    if (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__):
        return True
    a, b = one.__code__, other.__code__
    return (a.co_filename, a.co_firstlineno, a.co_name) == (
        b.co_filename,
        b.co_firstlineno,
        b.co_name,
    )


def _where(function: Any) -> str:
    code = function.__code__
    return (
        f"{function.__module__}.{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    )
