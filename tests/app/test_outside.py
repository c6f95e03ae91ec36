"""Calls to the outside: what is never called, and what a server that means harm can do with a call."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.outside import (
    LARGEST_ANSWER,
    PORT,
    Answer,
    BadAddress,
    NotNow,
    Outside,
    TooSlow,
    checked_url,
    is_public,
)
from tests.support.elsewhere import DAY, Authority, Elsewhere, answer, elsewhere

URL = "https://shop.example/check?cart=7"
LIMIT = timedelta(seconds=10)
A_MOMENT = timedelta(seconds=0.3)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Elsewhere]:
    async with elsewhere(tmp_path) as server:
        yield server


async def call(outside: Outside, url: str = URL, limit: timedelta = LIMIT, body: bytes = b"{}") -> Answer:
    try:
        return await outside.call("POST", url, limit=limit, headers={"x-test": "1"}, body=body)
    finally:
        outside.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://shop.example/", "only https"),
        ("ftp://shop.example/", "only https"),
        ("//shop.example/", "only https"),
        ("shop.example", "only https"),
        ("", "only https"),
        (" https://shop.example/", "only https"),
        ("https://shop.example:8443/", "only port 443"),
        ("https://shop.example:80/", "only port 443"),
        ("https://shop.example:99999/", "only port 443"),
        ("https://ana@shop.example/", "no user"),
        ("https://ana:secret@shop.example/", "no user"),
        ("https://@shop.example/", "no user"),
        ("https://shop.example\\@10.0.0.1/", "no user"),
        ("https://10.0.0.1\\@shop.example/", "no user"),
        ("https://shop.example/#part", "after #"),
        ("https://shop.example/#", "after #"),
        ("https://shop.example#@10.0.0.1/", "after #"),
        ("https:///check", "no public name"),
        ("https://localhost/", "no public name"),
        ("https://metadata/", "no public name"),
        ("https://localhost./", "without the dot"),
        ("https://shop.example./", "without the dot"),
        ("https://127.0.0.1./", "without the dot"),
        ("https://shop..example/", "no public name"),
        ("https://.shop.example/", "no public name"),
        ("https://-shop.example/", "no public name"),
        ("https://shop_.example/", "no public name"),
        ("https://*.example/", "no public name"),
        ("https://%31%32%37.0.0.1/", "not a number"),
        ("https://shop.example%2f/", "no public name"),
        ("https://shop.example%00.10.0.0.1/", "not a number"),
        ("https://shop.example\\.evil.example/", "no public name"),
        (f"https://{'a' * 64}.example/", "no public name"),
        (f"https://{'a.' * 127}example/", "no public name"),
        ("https://127.0.0.1/", "not a number"),
        ("https://8.8.8.8/", "not a number"),
        ("https://2130706433/", "not a number"),
        ("https://017700000001/", "not a number"),
        ("https://0x7f000001/", "not a number"),
        ("https://0x7F.1/", "not a number"),
        ("https://0x7f.0x1/", "not a number"),
        ("https://127.1/", "not a number"),
        ("https://0177.0.0.0x1/", "not a number"),
        ("https://0x/", "not a number"),
        ("https://1.2.3.4.5/", "not a number"),
        ("https://999.1.1.1/", "no address"),
        ("https://0300.0250.0.1/", "no address"),
        ("https://[::1]/", "not a number"),
        ("https://[::ffff:127.0.0.1]/", "not a number"),
        ("https://[::127.0.0.1]/", "not a number"),
        ("https://[64:ff9b::7f00:1]/", "not a number"),
        ("https://[fe80::1%25eth0]/", "not a number"),
        ("https://[fe80::1%eth0]/", "not a number"),
        ("https://[2606:4700::1111]/", "not a number"),
        ("https://[v1.x]/", "no address"),
        ("https://１２７.０.０.１/", "no"),
        ("https://①②⑦.⓪.⓪.①/", "no"),
        ("https://127。0。0。1/", "not a number"),
        ("https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "no"),
        ("https://shop.example/\r\nx: y", "no address"),
        ("https://shop\t.example/", "no address"),
        ("https://shop.example/" + "a" * 2000, "2,000 characters"),
    ],
)
def test_an_address_that_may_not_be_called_is_refused_by_its_text(url: str, words: str) -> None:
    with pytest.raises(BadAddress, match=words) as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://shop.example", b"shop.example"),
        ("https://shop.example:443/a/b?c=d@e", b"shop.example"),
        ("HTTPS://Shop.Example/", b"shop.example"),
        ("https://españa.example/ñ", b"xn--espaa-rta.example"),
        ("https://10.example/", b"10.example"),
        ("https://a.b-c.d0.example/", b"a.b-c.d0.example"),
    ],
)
def test_a_public_name_may_be_called(url: str, host: bytes) -> None:
    assert checked_url(url).raw_host == host


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255"),
        *("127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.9"),
        *("192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1"),
        *("203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *(
            "::",
            "::1",
            "::7f00:1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
        ),
        *("64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1"),
        *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "3fff::1"),
        *("5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fe80::1%1", "fec0::1", "ff02::1"),
        *("2606:4700::1111%1", "shop.example", "", "127.1", "0x7f.1", "010.0.0.1", "1.2.3.4/8"),
    ],
)
def test_no_address_inside_is_public_in_any_form(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1", "2001:4860::8"],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_what_is_public_in_version_4_is_so_to_the_library_too_and_in_no_disguise(address: IPv4Address) -> None:
    assert not is_public(str(address)) or (address.is_global and not address.is_multicast)
    for prefix in ("::", "::ffff:0:0", "64:ff9b::"):
        assert not is_public(str(IPv6Address(int(IPv6Address(prefix)) | int(address))))
    assert not is_public(str(IPv6Address(0x2002 << 112 | int(address) << 80 | 1)))


@given(st.ip_addresses(v=6))
def test_what_is_public_in_version_6_is_so_to_the_library_too(address: IPv6Address) -> None:
    assert not is_public(str(address)) or (address.is_global and not address.is_multicast)
    assert ip_address(str(address)) == address


async def test_a_call_bears_the_hosts_name_and_nothing_that_nobody_asked_for(server: Elsewhere) -> None:
    server.answers = [answer(201, b'{"paid": true}', x_shop="7")]
    said = await call(server.outside(), body=b'{"cart": 7}')
    assert (said.status, said.body, said.unread, said.headers["x-shop"]) == (201, b'{"paid": true}', None, "7")
    (request,) = server.requests
    assert (request.line, request.body) == ("POST /check?cart=7 HTTP/1.1", b'{"cart": 7}')
    assert request.headers["host"] == "shop.example"
    assert set(request.headers) == {"host", "user-agent", "accept-encoding", "connection", "x-test", "content-length"}
    assert server.names == ["shop.example"]


async def test_a_host_is_looked_up_once_and_called_at_the_address_that_was_checked(server: Elsewhere) -> None:
    server.addresses = [["127.0.0.1"], ["10.0.0.1"]]
    assert (await call(server.outside())).status == 200
    assert (server.lookups, len(server.requests)) == (["shop.example"], 1)
    with pytest.raises(BadAddress, match="inside"):
        await call(server.outside())
    assert len(server.lookups) == 2


@pytest.mark.parametrize(
    "found",
    [["10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["8.8.8.8"] * 9 + ["::1"], ["::ffff:127.0.0.1"], ["fe80::1%eth0"]],
)
async def test_one_address_inside_among_those_found_is_enough_to_call_none(server: Elsewhere, found: list[str]) -> None:
    server.addresses = [found]
    with pytest.raises(BadAddress, match="inside"):
        await call(server.outside())
    assert server.names == []


async def test_this_machine_is_inside_unless_a_test_says_otherwise(server: Elsewhere) -> None:
    with pytest.raises(BadAddress, match="inside"):
        await call(Outside(context=server.believed, lookup=server.look_up))
    outside = server.outside()
    assert (outside.port_of("127.0.0.1"), outside.port_of("8.8.8.8")) == (server.port, PORT)
    outside.close()


@pytest.mark.parametrize(
    "found", ["127.0.0.2 127.0.0.3 127.0.0.1", "127.0.0.1 127.0.0.2", "127.0.0.2 127.0.0.1 127.0.0.3"]
)
async def test_the_next_address_is_tried_where_one_takes_no_connection(server: Elsewhere, found: str) -> None:
    server.addresses = [found.split()]
    assert (await call(server.outside())).status == 200
    assert len(server.requests) == 1


async def test_a_host_that_is_not_found_may_be_there_later() -> None:
    async def fails(host: str) -> list[str]:
        raise OSError("no such host")

    async def finds_none(host: str) -> list[str]:
        return []

    for lookup in (fails, finds_none):
        with pytest.raises(NotNow, match="its host"):
            await call(Outside(lookup=lookup))


async def test_names_are_looked_up_by_the_system_without_a_lookup_of_the_tests() -> None:
    outside = Outside()
    with pytest.raises(BadAddress, match="inside"):
        await outside.addresses("localhost")
    outside.close()


async def test_a_server_that_takes_no_connection_may_do_so_later(server: Elsewhere) -> None:
    server.addresses = [["127.0.0.2"]]
    with pytest.raises(NotNow, match="no connection"):
        await call(server.outside())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(server: Elsewhere, status: int) -> None:
    server.answers = [answer(status, b"", location="https://127.0.0.1/inside")]
    assert (await call(server.outside())).status == status
    assert len(server.requests) == 1


async def test_proxies_and_other_things_of_the_environment_are_not_used(
    server: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await call(server.outside())).status == 200


@pytest.mark.parametrize("case", ["another name", "expired", "another authority"])
async def test_a_certificate_that_proves_nothing_ends_the_call_before_a_word_is_sent(tmp_path: Path, case: str) -> None:
    authority = Authority()
    identity: ssl.SSLContext = {
        "another name": lambda: authority.identify(tmp_path, "evil.example"),
        "expired": lambda: authority.identify(tmp_path, lives=-DAY),
        "another authority": lambda: Authority().identify(tmp_path),
    }[case]()
    async with elsewhere(tmp_path, identity=identity, authority=authority) as server:
        with pytest.raises(NotNow, match="certificate"):
            await call(server.outside())
        assert (server.requests, server.names) == ([], ["shop.example"])


async def test_the_usual_authorities_do_not_believe_a_certificate_of_the_tests(server: Elsewhere) -> None:
    with pytest.raises(NotNow, match="certificate"):
        await call(Outside(lookup=server.look_up, loopback=server.port))


async def test_a_slow_server_is_left_when_the_time_is_over(server: Elsewhere) -> None:
    async def never(writer: asyncio.StreamWriter) -> None:
        pass

    server.answers = [never]
    with pytest.raises(TooSlow, match=r"within 0\.3 seconds"):
        await call(server.outside(), limit=A_MOMENT)
    await asyncio.wait_for(server.left.wait(), 5)


async def test_the_time_is_for_the_whole_call_not_for_each_part_of_it(server: Elsewhere) -> None:
    async def drips(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    server.answers = [drips]
    with pytest.raises(TooSlow):
        await call(server.outside(), limit=A_MOMENT)


async def test_a_server_that_never_shakes_hands_is_left_and_its_connection_closed() -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listening:

        async def look_up(host: str) -> list[str]:
            return ["127.0.0.1"]

        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(TooSlow):
            await call(Outside(lookup=look_up, loopback=port), limit=A_MOMENT)
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_name_server_that_never_answers_is_left_when_the_time_is_over() -> None:
    async def look_up(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(TooSlow):
        await call(Outside(lookup=look_up), limit=A_MOMENT)


@pytest.mark.parametrize("head", ["content-length: 9999999999", "transfer-encoding: chunked", "connection: close"])
async def test_an_answer_without_end_is_cut_off_while_it_is_read(server: Elsewhere, head: str) -> None:
    sent = 0

    async def without_end(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        block = b"x" * 10_000
        while True:
            writer.write(b"2710\r\n" + block + b"\r\n" if "chunked" in head else block)
            sent += len(block)
            await writer.drain()

    server.answers = [without_end]
    said = await call(server.outside())
    assert (said.status, said.body) == (200, None)
    assert "65,536 bytes" in (said.unread or "")
    await asyncio.wait_for(server.left.wait(), 5)
    assert sent < 20_000_000, "what the system buffers, and no more"


async def test_as_much_as_may_be_read_is_read_and_one_byte_more_is_not(server: Elsewhere) -> None:
    server.answers = [answer(200, b"x" * LARGEST_ANSWER), answer(200, b"x" * (LARGEST_ANSWER + 1))]
    assert (await call(server.outside())).body == b"x" * LARGEST_ANSWER
    assert (await call(server.outside())).body is None


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip"])
async def test_a_compressed_answer_is_never_unfolded(server: Elsewhere, encoding: str) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < LARGEST_ANSWER
    server.answers = [answer(200, bomb, content_encoding=encoding)]
    said = await call(server.outside())
    assert (said.status, said.body, "compressed" in (said.unread or "")) == (200, None, True)
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
    ],
)
async def test_what_is_no_answer_is_tried_again(server: Elsewhere, wire: bytes) -> None:
    async def breaks_off(writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        await writer.drain()
        writer.close()

    server.answers = [breaks_off]
    with pytest.raises(NotNow, match="may have done its work") as problem:
        await call(server.outside())
    assert not isinstance(problem.value, TooSlow)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "999999999999"}, 86_400),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:00 GMT", "date": "Mon, 30 Nov 2026 12:00:00 GMT"}, 60),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:00 GMT", "date": "Mon, 30 Nov 2026 12:02:00 GMT"}, 0),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:00 GMT"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:00 GMT", "date": "Mon, 30 Nov 2026 12:00:00 -0000"}, None),
    ],
)
def test_a_time_to_come_again_is_read_in_both_forms_and_is_a_day_at_most(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert Answer(503, headers, b"").retry_after == seconds
