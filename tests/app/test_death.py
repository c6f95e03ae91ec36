"""Workers die at every single point of their path, and what recovery makes of it.

A first run in which nobody dies counts the points by passing them, so that one which is added to the path cannot be
forgotten; then a worker dies at each of them in turn, another one takes over, and the customer must have been answered and
reminded once, or it must say so that nobody can know.
"""

import math
from datetime import timedelta
from pathlib import Path

import pytest

from channels.message import OnUnknown
from channels.whatsapp.reconcile import LOOKS
from store.database import Database
from tests.support.claims import LEASE
from tests.support.death import ANSWER, REMINDER, Story, World, a_world

ANSWERED, REMINDED = ANSWER.split(", "), REMINDER.split(", ")
PARTS, SAID = ANSWERED + REMINDED, [ANSWER, REMINDER]
FIRED = [("turn", "fired"), ("followup", "fired")]
TAKEN_OVER = LEASE + timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _by_the_movable_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a tenant is read once more on the way where the machine is slow, and the points are others."""
    monkeypatch.setattr("app.service.FRESH", math.inf)


def fate_of(points: list[str], point: int) -> str | None:
    """Return what becomes of the send that is under way when a worker dies at this point: `unsent` or `unrecorded`."""
    before, at, after = points[: point - 1][-1:], points[point - 1], points[point:][:1]
    if at == "before a send" or after == ["before a send"]:
        return "unsent"
    return "unrecorded" if at == "after a send" or before == ["after a send"] else None


def given_up(seen: int, begun: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what is seen and what becomes of the tasks where so many sends were made, and the last one begun is given up.

    The rest of its message does not follow; the other message is not concerned.
    """
    if begun <= len(ANSWERED):
        return PARTS[:seen] + REMINDED, [("turn", "uncertain"), ("followup", "fired")]
    return PARTS[:seen], [("turn", "fired"), ("followup", "uncertain")]


def is_whole(events: list[str]) -> bool:
    """Whether each claim of a task was left once."""
    left = {"returned", "recovered", "written", "fired", "failed", "uncertain", "cancelled"}
    steps = [event for event in events if event == "claimed" or event in left]
    return (
        all(step == "claimed" if n % 2 == 0 else step in left for n, step in enumerate(steps)) and len(steps) % 2 == 0
    )


def is_known(story: Story) -> bool:
    """Whether all that arrived is known by its id, and all else was missing at every look."""
    arrived = [one.provider_id for one in story.sends if one.outcome == "accepted"]
    missing = [one.not_found for one in story.sends if one.outcome != "accepted"]
    last_looks = [age for age in story.asked if age >= LOOKS[-1]]
    is_looked_for = len(story.asked) >= len(LOOKS) * len(missing) and len(last_looks) >= len(missing)
    return arrived == story.ids and set(missing) <= {len(LOOKS)} and is_looked_for


async def undisturbed(world: World) -> list[str]:
    """Return the points of a worker's life that nothing ends."""
    story = await world.story()
    assert (story.seen, story.became, story.said) == (PARTS if world.phone else SAID, FIRED, SAID)
    (points,) = story.passed
    assert {"before a commit", "after a commit", "while the model answers"} <= set(points)
    assert points.count("before a send") == points.count("after a send") == (len(PARTS) if world.phone else 0)
    return points


@pytest.mark.parametrize(
    ("channel", "on_unknown", "uncertain"),
    [
        ("web", "at_most_once", []),
        ("telegram", "at_most_once", ["unsent", "unrecorded"]),
        ("whatsapp", "at_most_once", ["unsent"]),
        ("whatsapp", "at_least_once", []),
    ],
)
async def test_whatever_point_a_worker_dies_at_the_customer_hears_once_or_it_says_so(
    database: Database, tmp_path: Path, channel: str, on_unknown: OnUnknown, uncertain: list[str]
) -> None:
    """Everything is seen once and both tasks end `fired`, but for a send that was begun and whose outcome died with the worker.

    On the web there is none. A network that cannot be asked leaves its task `uncertain`, whether it was made or not. One
    that can be asked finds it at the first look if it was made, and what is left follows; if not, no look finds it. Then
    with `at_least_once` it is sent again, and seen once all the same; with `at_most_once` it is never sent again, and its
    task is `uncertain`: what all looks have missed may still be on its way.
    """
    async with a_world(database, tmp_path, channel, on_unknown) as world:
        points = await undisturbed(world)
        looks = {"unsent": [TAKEN_OVER, LOOKS[1]], "unrecorded": [TAKEN_OVER]} if channel == "whatsapp" else {}
        fates = []
        for point in range(1, len(points) + 1):
            story = await world.story(point)
            at = f"{point} of {len(points)}, {points[point - 1]}: {story}"
            assert story.passed[0] == points[:point], "the path to a point is always the same"
            seen, became, fate = PARTS if world.phone else SAID, FIRED, fate_of(points, point)
            if fate in uncertain:
                seen, became = given_up(
                    points[:point].count("after a send"), points[: point + 1].count("before a send")
                )
            assert (story.seen, story.became, story.said) == (seen, became, SAID), at
            assert all(map(is_whole, story.events)), at
            assert story.asked == looks.get(fate or "", []), at
            assert any("returned" in events for events in story.events) == (len(story.asked) > 1), (
                f"it waits to look: {at}"
            )
            assert is_known(story) or channel == "telegram", at
            fates.append(fate)
        assert fates.count("unsent") == fates.count("unrecorded") == (2 * len(PARTS) if world.phone else 0)


@pytest.mark.parametrize(
    ("on_unknown", "first", "part"),
    [
        ("at_most_once", "after a send", 0),
        ("at_most_once", "after a send", 1),
        ("at_most_once", "before a send", 0),
        ("at_least_once", "before a send", 1),
    ],
)
async def test_whatever_point_a_worker_dies_at_that_looks_up_what_another_left_it_is_as_if_only_one_had_died(
    database: Database, tmp_path: Path, on_unknown: OnUnknown, first: str, part: int
) -> None:
    """The first worker dies at a part of the reminder, the second at each point of what it does about that; a third ends it.

    A look counts only once it is committed that it found nothing; one that died with its worker is made again, at no
    cost. A part that was sent is found and never sent again, whatever `on_unknown` says. One that was not is missing at
    every look, whoever makes them: with `at_least_once` it is sent then, again looked up if that worker dies too, and so
    seen once; with `at_most_once` the task is `uncertain`, which it also is when the second worker leaves the next part so.
    """
    async with a_world(database, tmp_path, "whatsapp", on_unknown) as world:
        path = await undisturbed(world)
        death = [n for n, name in enumerate(path, 1) if name == first][len(ANSWERED) + part]
        _, points = (await world.story(death)).passed
        assert points.count("before a look-up") == points.count("after a look-up") == (1 if "after" in first else 2)
        for point in range(1, len(points) + 1):
            story = await world.story(death, point)
            at = f"{point} of {len(points)}, {points[point - 1]}: {story}"
            assert story.passed[:2] == [path[:death], points[:point]], "the path to a point is always the same"
            seen, became = PARTS, FIRED
            if on_unknown == "at_most_once" and "unsent" in (fate_of(path, death), fate_of(points, point)):
                seen, became = given_up(sum(passed.count("after a send") for passed in story.passed), len(PARTS))
            assert (story.seen, story.became, story.said) == (seen, became, SAID), at
            assert all(map(is_whole, story.events)), at
            assert min(story.asked) >= LOOKS[0], at
            assert is_known(story), at


@pytest.mark.parametrize("place", ["about", "text"])
async def test_whatever_point_a_worker_dies_at_after_the_window_the_template_and_what_it_tells_of_come_once(
    database: Database, tmp_path: Path, place: str
) -> None:
    template = {"sid": "HX" + "1" * 32, "language": "en", "variables": {"1": place}}
    async with a_world(database, tmp_path, "whatsapp", "at_least_once", template) as world:
        whole = await world.story()
        told = "call Ana" if place == "about" else REMINDER
        assert whole.seen == [*ANSWERED, f'Hello, {{"1": "{told}"}}', *(REMINDED if place == "about" else [])]
        assert (whole.became, whole.said) == (FIRED, SAID)
        (points,) = whole.passed
        for point in range(1, len(points) + 1):
            story = await world.story(point)
            at = f"{point} of {len(points)}, {points[point - 1]}: {story}"
            assert (story.seen, story.became, story.said) == (whole.seen, FIRED, SAID), at
            assert all(map(is_whole, story.events)), at
            assert is_known(story), at
