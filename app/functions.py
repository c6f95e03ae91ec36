"""The developer's side of deferred runs.

    app = App(time_zone="Europe/Madrid")

    @app.function("/send-followup", input=Cart)
    async def send_followup(cart: Cart, ctx: Context) -> dict[str, object]: ...

`VUELVO_APP=shop:app` names it. A function is called over HTTP, with a tenant's key, at once or at a time that is booked; or by
another function's booking. A run that fails is tried again, and one whose worker dies is run again: what must happen once is
the function's own matter, for which `ctx.run_id` is the same each time.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from app.context import Context
from app.deferred import DEEPEST, LARGEST_PAYLOAD, PATH, BadBooking, holds_zero, is_deep
from scheduler.put_off import PATIENCE
from scheduler.scheduled import LOCAL, Scheduler

TIMEOUT = timedelta(minutes=5)

Handler = Callable[..., Awaitable[Any]]
"""An async function of its input and, if it wants it, of the context."""


class BadInput(BadBooking):
    """What a function was given is not what it takes."""


class Broken(Exception):
    """A function ended as none may: it asked the whole process to end, was cancelled from within, or left its work undone."""


class Stop(Exception):
    """Raised by a function: this run is not to be tried again. The message is kept as its error."""


class Later(Exception):
    """Raised by a function: it cannot run now, and that is no fault of its own. It is tried again for a day, however often.

    The message is kept as its error. It is not tried again before `after` is over. Raises ValueError for more than a day.
    """

    def __init__(self, words: str, after: timedelta | None = None) -> None:
        if after is not None and after > PATIENCE:
            raise ValueError(
                f"it is tried again for {PATIENCE} and no longer, not after {after}: book another run instead"
            )
        super().__init__(words)
        self.retry_after = None if after is None else max(after.total_seconds(), 0)


@dataclass(frozen=True, slots=True)
class Function:
    """One function and where it is called."""

    path: str
    handler: Handler
    input: type[BaseModel] | None
    timeout: timedelta
    _wants_context: bool = field(default=True, repr=False)

    def read(self, payload: object) -> Any:
        """Return a payload as the function takes it. Raises BadInput, naming what is wrong and no value."""
        if self.input is None:
            return payload
        try:
            return self.input.model_validate(payload)
        except ValidationError as problem:
            wrong = "; ".join(
                f"{'.'.join(map(str, error['loc'])) or 'the payload'}: {error['msg']}"
                for error in problem.errors(include_input=False)
            )
            raise BadInput(f"{self.path} does not take this payload: {wrong[:1000]}") from None

    async def call(self, given: object, ctx: Context) -> Any:
        """Call it and return its result.

        Raises whatever it raises, GuardNotRun for a chain of checks that it left, and Broken in place of what would end more
        than this call.
        """
        try:
            result = await (self.handler(given, ctx) if self._wants_context else self.handler(given))
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as problem:
            task = asyncio.current_task()
            if isinstance(problem, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise Broken(f"it raised {type(problem).__name__}: {problem}") from problem
        ctx.complain()
        if inspect.iscoroutine(result):
            result.close()  # which would else be complained of where nobody knows whose it is
        if inspect.isawaitable(result) or inspect.isroutine(result):
            raise Broken(f"it returned {result!r:.100}, which was not awaited, or not called: so it is not done")
        return result


class App:
    """A developer's application: its functions, and its schedules."""

    def __init__(self, *, time_zone: str = LOCAL) -> None:
        """`time_zone` is that of every cron schedule that names none. Raises BadSchedule for one that is not known."""
        self.scheduler = Scheduler(time_zone=time_zone)
        self.functions: dict[str, Function] = {}

    def function(
        self,
        path: str,
        *,
        input: type[BaseModel] | None = None,
        timeout: timedelta = TIMEOUT,
    ) -> Callable[[Handler], Handler]:
        """Register an async function at a path; `input` is the model of what it takes, without one it gets JSON.

        Raises ValueError for a path that is none or is taken, TypeError for what is no async function of one or two arguments, and for an input that is no model.
        """
        if not isinstance(path, str) or PATH.fullmatch(path) is None:
            raise ValueError(f"{path!r} is no path: begin with / and use letters, digits, _ . ~ / and -, 200 at most")
        if path in self.functions:
            raise ValueError(f"there is a function at {path} already")
        if input is not None and not (isinstance(input, type) and issubclass(input, BaseModel)):
            raise TypeError(
                f"the input of {path} is a Pydantic model, not {input!r:.60}; leave it out to get JSON as it came"
            )
        if timeout <= timedelta():
            raise ValueError(f"the timeout of {path} is a time greater than nothing")

        def register(handler: Handler) -> Handler:
            if not inspect.iscoroutinefunction(handler):
                raise TypeError(f"the function at {path} must be async: write async def")
            places = [
                one
                for one in inspect.signature(handler).parameters.values()
                if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            ]
            needs_more = any(
                one.kind is one.KEYWORD_ONLY and one.default is one.empty
                for one in inspect.signature(handler).parameters.values()
            )
            if not 1 <= len(places) <= 2 or needs_more:
                raise TypeError(f"the function at {path} takes its input and the context, or its input alone")
            self.functions[path] = Function(path, handler, input, timeout, len(places) == 2)
            return handler

        return register


def written(result: object) -> str:
    """Return a function's result as JSON, at most 64 KB of it. Raises ValueError for what cannot be written."""
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json")
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False)
        size = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode())  # as a payload is measured
    except (TypeError, ValueError, RecursionError) as problem:
        raise ValueError(f"its result cannot be written as JSON: {problem}") from problem
    if size > LARGEST_PAYLOAD or holds_zero(text) or is_deep(text):
        raise ValueError(
            f"its result is larger than {LARGEST_PAYLOAD:,} bytes of JSON, deeper than {DEEPEST} levels, or holds a zero byte"
        )
    return text
