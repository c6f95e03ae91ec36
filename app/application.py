"""The developer's own application: `VUELVO_APP` names a module and in it an App, or a Scheduler, or something that has one."""

import sys
from importlib import import_module
from pathlib import Path

from app.functions import App
from scheduler.errors import SchedulerError
from scheduler.scheduled import Scheduler


class ApplicationError(Exception):
    """What VUELVO_APP names cannot be used; the message says why, and the way out."""


def load(name: str | None) -> App:
    """Return the application `module:object`, looked for in the current directory first; an empty one without a name.

    Raises ApplicationError.
    """
    if name is None:
        return App(time_zone="UTC")
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise ApplicationError(f"VUELVO_APP is {name[:60]!r}: write module:object, such as jobs:scheduler")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name and (module_name == problem.name or module_name.startswith(f"{problem.name}.")):
            raise ApplicationError(f"VUELVO_APP names the module {module_name!r}, which is not in {here}") from problem
        raise ApplicationError(
            f"the module {module_name!r} of VUELVO_APP needs one that is missing: {problem.name}"
        ) from problem
    except SchedulerError as problem:
        raise ApplicationError(
            f"a schedule in the module {module_name!r} of VUELVO_APP cannot be kept: {problem}"
        ) from problem
    except (Exception, SystemExit) as problem:
        raise ApplicationError(
            f"the module {module_name!r} of VUELVO_APP cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem
    found = module
    try:
        for part in attribute.split("."):
            found = getattr(found, part, None)  # type: ignore[assignment]
        if isinstance(found, App):
            return found
        scheduler = found if isinstance(found, Scheduler) else getattr(found, "scheduler", None)
    except (Exception, SystemExit) as problem:
        raise ApplicationError(
            f"VUELVO_APP names {attribute!r} in {module_name!r}, which raises {type(problem).__name__}: {problem}"
        ) from problem
    if not isinstance(scheduler, Scheduler):
        raise ApplicationError(
            f"VUELVO_APP names {attribute!r} in {module_name!r}, which is no App or Scheduler and has none"
        )
    app = App(time_zone="UTC")
    app.scheduler = scheduler
    return app
