"""The way to a tenant's own servers leads to public addresses by HTTPS, and nowhere else."""

import asyncio
from typing import Any

import httpx2
import pytest

from agent.section import McpServer
from app.public import NotPublic, is_public, public_client
from tests.support.outside_server import a_server

SERVER = McpServer.model_validate(a_server())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8",
        "192.88.99.1", "198.18.0.1", "203.0.113.7", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
        "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8",
        "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::", "2001::1", "2001:db8::1", "3fff::1",
        "no address",
    ],
)  # fmt: skip
def test_an_address_within_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::200e"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://tools.example/mcp",
        "https://tools.example:8443/mcp",
        "https://user@tools.example/mcp",
        "https://127.0.0.1/mcp",
        "https://0x7f.1/mcp",
        "https://2130706433/mcp",
        "https://[::1]/mcp",
        "https://localhost/mcp",
        "https://localhost./mcp",
    ],
)
async def test_what_is_not_public_https_is_not_called(url: str) -> None:
    async with public_client(SERVER) as client:
        with pytest.raises(NotPublic):
            await client.get(url)


async def test_a_name_with_one_address_within_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("8.8.8.8", 443)), (0, 0, 0, "", ("10.0.0.7", 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    async with public_client(SERVER) as client:
        with pytest.raises(NotPublic, match="not public"):
            await client.get("https://tools.example/mcp")


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("8.8.8.8", 443))]

    sent: list[httpx2.Request] = []

    async def send(_: Any, request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(302, headers={"location": "https://10.0.0.7/"})

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", one)
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    async with public_client(SERVER) as client:
        answer = await client.get("https://tools.example/mcp")
    (request,) = sent
    assert answer.status_code == 302, "no redirect is followed"
    assert (request.url.host, request.headers["host"]) == ("8.8.8.8", "tools.example")
    assert request.extensions["sni_hostname"] == "tools.example"
