"""Another server: HTTPS on this machine, with a certificate of a test's own, that answers as the test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.outside import Outside

HOST = "shop.example"
DAY = timedelta(days=1)


class Authority:
    """Signs certificates."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "An authority of the tests")])
        self._certificate = self._signed(self._name, self._key.public_key(), DAY, x509.BasicConstraints(True, 0))

    def believed(self) -> ssl.SSLContext:
        """Return what a client believes that believes this authority alone."""
        return ssl.create_default_context(cadata=self._certificate.public_bytes(Encoding.PEM).decode())

    def identify(self, directory: Path, host: str = HOST, lives: timedelta = DAY) -> ssl.SSLContext:
        """Return what a server proves its name with."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._signed(name, key.public_key(), lives, x509.SubjectAlternativeName([x509.DNSName(host)]))
        file = directory / f"{x509.random_serial_number()}.pem"
        file.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        lives: timedelta,
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + lives)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


@dataclass(frozen=True)
class Request:
    """What came."""

    line: str
    headers: Mapping[str, str]
    body: bytes


Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Elsewhere:
    """A server, what came to it, and how it answers: with the next of its answers, or the last again."""

    believed: ssl.SSLContext
    port: int = 0
    answers: list[bytes | Write] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """What was asked for in each handshake."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has gone."""
    addresses: list[Sequence[str]] = field(default_factory=lambda: [["127.0.0.1"]])
    """What each lookup of a host finds, the last again and again."""
    lookups: list[str] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def outside(self) -> Outside:
        """Return what calls it."""
        return Outside(context=self.believed, lookup=self.look_up, loopback=self.port)

    async def look_up(self, host: str) -> Sequence[str]:
        """Find a host's addresses."""
        self.lookups.append(host)
        return self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request and answer it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Request(head[0], headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
            await reader.read()  # until the client goes
        finally:
            self.left.set()

    async def stop(self) -> None:
        """Let nobody wait any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> bytes:
    """Return an answer as it goes over the wire."""
    named = {"content-length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def elsewhere(
    directory: Path, *, identity: ssl.SSLContext | None = None, authority: Authority | None = None
) -> AsyncIterator[Elsewhere]:
    """Run another server, with an identity that is believed, or with this one."""
    authority = authority or Authority()
    context = identity or authority.identify(directory)
    server = Elsewhere(authority.believed(), answers=[answer()])

    def named(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        server.names.append(name)

    context.sni_callback = named
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()
