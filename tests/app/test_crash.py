"""The short forms of `make crash`: real processes, killed and starved of their database, and providers that fail."""

from collections import Counter
from pathlib import Path

from store.database import Database
from tests.crash.plan import Plan
from tests.crash.verdict import burn
from tests.rush.trial import rush


async def test_under_fire_nothing_is_lost_or_said_twice_or_out_of_order(tmp_path: Path) -> None:
    verdict = await burn(Plan(200, 20, workers=2, seconds=15, most_kills=3, restarts=1, waits_for_word=False), tmp_path)
    assert not verdict.broken, "\n".join(verdict.complaints())
    done = Counter(harm.kind for harm in verdict.evidence.harms)
    assert done["kill"]
    assert done["restart"] == 1
    assert sum(counts["seen"] for counts in verdict.counts.values()) > 100


async def test_of_renewals_that_are_all_due_at_once_each_is_told_once_though_workers_are_killed(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    times, ends, recovered = await rush(database, database_url, tmp_path, contacts=300, kills=2)
    assert (times, ends) == ({1: 300}, {"delivered": 300})
    assert recovered, "workers were killed in the midst of it"


def test_one_seed_is_one_schedule() -> None:
    one, same, other = Plan(seed=7), Plan(seed=7), Plan(seed=8)
    assert schedule(one) == schedule(same)
    assert schedule(one) != schedule(other)


def schedule(plan: Plan) -> list[object]:
    """Return what is done to a run, and when."""
    kills, faults = plan.kills(), plan.faults("telegram")
    first = [(next(kills), next(faults)) for _ in range(100)]
    return [plan.booked, first, plan.database_restarts, plan.outages("whatsapp"), plan.callbacks(3)]
