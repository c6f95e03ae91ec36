"""`vuelvo schedules`: what is stored, and when cron comes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.schedules import schedules
from tests.support.process import start


def preview(*words: str) -> Result:
    return CliRunner().invoke(schedules, ["preview", *words])


def test_the_coming_runs_are_printed_and_those_that_are_moved_are_marked() -> None:
    told = preview("30 2 * * *", "--zone", "Europe/Madrid", "--from", "2027-03-27T00:00", "--count", "3")
    assert told.exit_code == 0
    assert told.output.splitlines() == [
        "Sat 2027-03-27 02:30 +0100",
        "Sun 2027-03-28 03:30 +0200  moved: the clocks skip the time it is meant for",
        "Mon 2027-03-29 02:30 +0200",
    ]


def test_as_json_each_run_has_its_offset() -> None:
    words = ("30 2 * * *", "--zone", "Europe/Madrid", "--from", "2027-03-28T00:00", "--count", "2", "--json")
    assert json.loads(preview(*words).output) == {
        "runs": [
            {"at": "2027-03-28T03:30:00+02:00", "moved": True},
            {"at": "2027-03-29T02:30:00+02:00", "moved": False},
        ]
    }


def test_the_time_it_begins_at_counts_and_may_have_an_offset() -> None:
    told = preview("0 9 * * *", "--zone", "Asia/Kathmandu", "--from", "2026-12-01T09:00", "--count", "1")
    assert told.output == "Tue 2026-12-01 09:00 +0545\n"
    told = preview("0 9 * * *", "--zone", "Asia/Kathmandu", "--from", "2026-12-01T03:15:01Z", "--count", "1")
    assert told.output == "Wed 2026-12-02 09:00 +0545\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("0 0 30 2 *",), "never comes in month '2'"),
        (("60 * * * *",), "the minute '60'"),
        (("0 9 * * *", "--zone", "Mars/Olympus"), "'Mars/Olympus' is not a time zone"),
        (("0 9 * * *", "--from", "tomorrow"), "--from is 'tomorrow'"),
        (("0 9 * * *", "--from", "9999-12-31T23:00"), "no more before the year 10000"),
        (("0 9 * * *", "--count", "0"), "--count"),
        (("",), "has 0 fields"),
    ],
)
def test_what_can_never_fire_or_is_asked_wrongly_ends_with_2(words: tuple[str, ...], said: str) -> None:
    told = preview(*words)
    assert told.exit_code == 2
    assert said in told.output
    assert "Traceback" not in told.output


async def _vuelvo(directory: Path, *words: str, app: str | None = None) -> tuple[int, str]:
    process = await start(*words, directory=directory, environ={"VUELVO_APP": app} if app else {})
    return await process.ended(), "\n".join(process.said)


async def test_what_is_stored_is_listed_and_an_orphan_can_be_taken_away(tmp_path: Path) -> None:
    code = "from scheduler.scheduled import Scheduler\nscheduler = Scheduler(time_zone='Europe/Madrid')\n"
    task = "@scheduler.{how}, id={id!r})\nasync def {id}(): ...\n"
    digest = task.format(how="cron('0 9 * * mon-fri', missed='run-once'", id="digest")
    (tmp_path / "jobs.py").write_text(code + digest + task.format(how="every('1h'", id="sync"))
    process = await start("serve", directory=tmp_path, environ={"VUELVO_APP": "jobs:scheduler", "VUELVO_PORT": "0"})
    await process.until_said("Vuelvo is here")
    assert await process.stop() == 0
    (tmp_path / "jobs.py").write_text(code + digest)
    ended, said = await _vuelvo(tmp_path, "schedules", "list", "--json", app="jobs:scheduler")
    assert ended == 0, said
    listed: list[dict[str, Any]] = json.loads(said)
    assert [(each["id"], each["when"], each["missed"], each["orphan"]) for each in listed] == [
        ("digest", "TZ=Europe/Madrid 0 9 * * mon-fri", "run-once", False),
        ("sync", "every 3600s", "skip", True),
    ]
    assert all(each["next_run_at"] for each in listed)
    ended, said = await _vuelvo(tmp_path, "schedules", "forget", "sync")
    assert (ended, said) == (0, "sync comes no more")
    ended, said = await _vuelvo(tmp_path, "schedules", "forget", "nothing")
    assert ended == 2
    assert "there is no schedule 'nothing'" in said
    ended, said = await _vuelvo(tmp_path, "schedules", "list")
    assert "sync" not in said
    assert "digest" in said
    ended, said = await _vuelvo(tmp_path, "schedules", "purge", "--older-than", "0s")
    assert (ended, said) == (0, "1 deleted")
