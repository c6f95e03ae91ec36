"""What the HTTP side hands the widget."""

from pathlib import Path

from app.http import application
from scheduler.events import story
from store.database import Database
from tests.support.asgi import calling
from tests.support.house import a_house


async def test_what_a_visitor_cancels_is_recorded_as_the_customers_doing(database: Database, tmp_path: Path) -> None:
    async with a_house(database, tmp_path) as house, calling(application(house.run)) as http:
        opened = (await http.post("/widget/acme/sessions", json={"time_zone": "UTC", "language": "en"})).json()
        headers = {"Authorization": f"Bearer {opened['token']}"}
        said = {"text": "remind me in 2 hours to call Ana", "client_id": "1"}
        await http.post("/widget/acme/messages", json=said, headers=headers)
        await house.until_heard(opened["conversation"], 1)
        (booked,) = await house.tasks()
        answer = await http.delete(f"/widget/acme/pending/{booked.id}", headers=headers)
        assert answer.json() == {"status": "cancelled"}
    async with database.transaction() as connection:
        last = (await story(connection, "acme", booked.id))[-1]
    assert (last.event, last.detail) == ("cancelled", "the customer")
