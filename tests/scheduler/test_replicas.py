"""Replicas killed with -9 while durable schedules run; `make crash` does it for longer."""

from tests.replicas.trial import Trial


async def test_whatever_replica_is_killed_each_slot_runs_and_never_two_at_a_time(database_url: str) -> None:
    """Two replicas for a few seconds, one kill or two, and a stop in which slots are missed under each policy."""
    trial = Trial(database_url, seconds=6, tasks=3, replicas=2, kills_every=2, outage=4, patience=5)
    await trial.run()
    assert trial.wrong == []
    assert trial.kills >= 1
    assert trial.counts["run as missed under catch-up"] >= 3
    assert trial.counts["run as missed under run-once"] >= 3
    assert trial.counts["slots"] >= 20
