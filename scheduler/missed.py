"""What a claim of a schedule is for: which of its slots are run now, and which not at all.

A slot is missed when it is claimed more than a grace after it was due: nobody was there to run it. Then the schedule's policy
decides, from what is stored alone:

    skip        none of what was missed runs
    run-once    the first that was missed, and no other
    catch-up    all of them in order, up to a number; what is beyond it is skipped

A slot whose run began is not missed, however late it is claimed again after its worker died: it runs again as itself, and
the policy is for what comes after it. A catch-up that was cut off begins again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal, get_args

from scheduler.recurrence import Recurrence, slots_until

Policy = Literal["skip", "run-once", "catch-up"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
MOST_CAUGHT_UP = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done under one claim."""

    slots: Sequence[datetime]
    """To run, in order."""
    is_missed: bool
    """Whether they are run by the policy."""
    following: datetime | None
    """The slot after those that this claim answers for; None where there is none."""
    skipped_from: datetime | None = None
    """The first slot that will not run; None where all do."""


def plan(
    recurrence: Recurrence,
    slot: datetime,
    now: datetime,
    *,
    policy: Policy,
    most: int,
    grace: timedelta,
    began_missed: bool | None,
) -> Plan:
    """Return what a claim at `now` of what was due at `slot` is for.

    `began_missed` is None where no run of this slot has begun; else whether it was run as missed.
    """
    is_missed = now - slot > grace if began_missed is None else began_missed
    if not is_missed:
        return Plan([slot], False, recurrence.after(slot, slot))
    following = recurrence.after(slot, max(now, slot))
    if policy == "skip":
        return Plan([], True, following, slot)
    if policy == "run-once":
        second = recurrence.after(slot, slot)
        return Plan([slot], True, following, second if second is not None and second <= now else None)
    slots = list(islice(slots_until(recurrence, slot, max(now, slot)), most + 1))
    return Plan(slots[:most], True, following, slots[most] if len(slots) > most else None)
