"""Guards: what is looked at when a run fires, before it does anything.

    return await (
        ctx.guard
        .when("not paid yet", lambda: not is_paid(cart))
        .when("still a customer", check_customer)
        .run(send)
    )

The first check that says no ends the run: `{"skipped": "not paid yet"}`. One that raises has not said no: nothing is known, so
neither the handler nor a skip follows; the run fails with that error, and is tried again.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Check = Callable[[], object] | Callable[[], Awaitable[object]]
"""Says yes or no: a function, or an async one, of nothing."""


class GuardNotRun(Exception):
    """A chain of checks was made and never run: whatever it was to guard did not happen, or happened unguarded."""


class CheckFailed(Exception):
    """A check raised, so nobody knows whether the run is still wanted; it is tried again."""


class Guard:
    """A chain of named checks; a fresh one each time it is asked for."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, Check]] = []
        self._is_run = False

    def when(self, name: str, check: Check) -> "Guard":
        """Add a check; checks are made in their order, and none after the first that says no.

        Raises ValueError for a name that is empty or known already, TypeError for what cannot be called.
        """
        if not isinstance(name, str) or not name.strip() or len(name) > 200:
            raise ValueError("a check has a name of 1 to 200 characters: it is shown where the check says no")
        if any(name == known for known, _ in self._checks):
            raise ValueError(f"there is a check {name!r} in this chain already: give each a name of its own")
        if not callable(check):
            raise TypeError(f"the check {name!r} is called when the run fires: give a function, not {check!r:.60}")
        self._checks.append((name, check))
        return self

    async def run(self, handler: Callable[[], object] | Callable[[], Awaitable[object]]) -> Any:
        """Make the checks, and return what the handler returns, or `{"skipped": name}`.

        Raises CheckFailed where a check raised, and whatever the handler raises.
        """
        self._is_run = True
        for name, check in self._checks:
            try:
                said = check()
                if inspect.isawaitable(said):
                    said = await said
                if inspect.isroutine(said):  # which would be yes, always
                    raise TypeError(f"it returned {said!r:.100}, and did not call it")
                says_yes = bool(said)
            except Exception as problem:
                raise CheckFailed(
                    f"the check {name!r} raised {type(problem).__name__}: {problem}; it is not known whether the run is wanted"
                ) from problem
            if not says_yes:
                return {"skipped": name}
        done = handler()
        return await done if inspect.isawaitable(done) else done

    def complain(self) -> None:
        """Raise GuardNotRun for a chain that has checks and was not run."""
        if self._checks and not self._is_run:
            first = self._checks[0][0]
            raise GuardNotRun(f"ctx.guard.when({first!r}, …) was not run: end the chain with await ….run(handler)")
