"""The way to a tenant's own servers leads where calls to the outside may lead, and nowhere else."""

from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest

from agent.section import McpServer
from app.outside import Outside
from app.public import NotPublic, client_maker
from store.database import Database
from tests.support.house import a_house
from tests.support.outside_server import a_server

SERVER = McpServer.model_validate(a_server())


class Names:
    """A name service that knows one answer."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def look_up(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if not self.addresses:
            raise OSError("secret words of the network")
        return self.addresses

    def client(self) -> httpx2.AsyncClient:
        return client_maker(Outside(lookup=self.look_up))(SERVER)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    """The requests that were sent; each is answered with a way inside."""
    sent: list[httpx2.Request] = []

    async def send(_: object, request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(302, headers={"location": "https://10.0.0.7/"})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    return sent


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.example/mcp",
        "https://tools.example:8443/mcp",
        "https://user@tools.example/mcp",
        "https://127.0.0.1/mcp",
        "https://8.8.8.8/mcp",
        "https://0x7f.1/mcp",
        "https://2130706433/mcp",
        "https://[::1]/mcp",
        "https://localhost/mcp",
        "https://localhost./mcp",
    ],
)
async def test_what_may_not_be_called_by_its_text_is_not_even_looked_up(url: str, sent: list[httpx2.Request]) -> None:
    names = Names("8.8.8.8")
    async with names.client() as client:
        with pytest.raises(NotPublic):
            await client.get(url)
    assert (names.asked, sent) == ([], [])


@pytest.mark.parametrize("addresses", [("10.0.0.7",), ("8.8.8.8", "10.0.0.7"), ("2606:4700::1111", "::ffff:8.8.8.8")])
async def test_a_name_with_one_address_inside_is_not_called(
    addresses: tuple[str, ...], sent: list[httpx2.Request]
) -> None:
    async with Names(*addresses).client() as client:
        with pytest.raises(NotPublic, match="an address inside"):
            await client.get("https://tools.example/mcp")
    assert sent == []


async def test_a_name_that_leads_nowhere_is_told_in_our_own_words(sent: list[httpx2.Request]) -> None:
    async with Names().client() as client:
        with pytest.raises(NotPublic, match="its host was not found") as refused:
            await client.get("https://tools.example/mcp")
    assert "secret" not in str(refused.value)
    assert sent == []


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
async def test_the_connection_goes_to_the_address_that_was_checked(address: str, sent: list[httpx2.Request]) -> None:
    names = Names(address, "1.1.1.1")
    async with names.client() as client:
        answer = await client.get("https://tools.example/mcp")
    (request,) = sent
    assert answer.status_code == 302, "no redirect is followed"
    assert names.asked == ["tools.example"], "it is looked up once"
    assert (request.url.host, request.headers["host"]) == (address, "tools.example")
    assert request.extensions["sni_hostname"] == "tools.example"


async def test_the_service_goes_its_one_way_to_the_outside(
    database: Database, tmp_path: Path, sent: list[httpx2.Request]
) -> None:
    names = Names("10.0.0.7")
    config = {"agent": {"mcp": [a_server()]}}
    async with a_house(database, tmp_path, config=config, outside=Outside(lookup=names.look_up)) as house:
        heard = await house.says("hello")
        await house.until_heard(heard.conversation, 1)
    assert set(names.asked) == {"tools.shop.example"}
    assert sent == []
