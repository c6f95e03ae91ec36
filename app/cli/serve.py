"""`vuelvo serve` and `vuelvo work`."""

import asyncio
import contextlib
import logging
import socket

import click

from app.cli.run import fail, run
from app.cli.stop import Stop
from app.http import application, health
from app.receivers import Receivers
from app.server import Limits, Server, allow_files
from app.settings import Settings
from app.wiring import running

log = logging.getLogger(__name__)


def open_port(host: str, port: int, setting: str = "VUELVO_PORT") -> socket.socket:
    """Return a listening socket. Ends with a clear line when the port is taken or the host is not ours.

    `setting` is where the port was named.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, or asyncio leaves TCP_NODELAY off what is taken in: then an answer's body waits 40 ms for the
    # client to acknowledge its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # whoever comes before the application is ready waits
    except OSError as problem:
        listening.close()
        fail(
            f"cannot listen on {host}:{port} ({problem.strerror}): set {setting} or VUELVO_HOST, or stop what is there"
        )
    return listening


async def _serve(settings: Settings, no_poller: bool) -> None:
    stop = Stop()
    limits = Limits(connections=allow_files())
    listening = open_port(settings.host, settings.port)
    with contextlib.closing(listening):
        async with running(settings, poll=not no_poller, load_app=True) as house:
            server = Server(application(house), limits, settings.trusted_proxies or ())
            receivers = asyncio.create_task(Receivers(house.service, settings, house.stopping).run())
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            stop.is_up()
            click.echo(f"Vuelvo is here: {settings.public_url or _address(listening)}/")
            await asyncio.wait({serving, asyncio.create_task(stop.asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
            log.info("stopping: what is in hand is finished or given back")
            house.stopping.set()
            server.should_exit = True
            await asyncio.gather(serving, receivers)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{_shown(host)}:{port}"


def _shown(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else host  # noqa: S104 - only shown


async def _work(settings: Settings, port: int | None) -> None:
    stop = Stop()
    async with contextlib.AsyncExitStack() as stack:
        server = serving = None
        if port is not None:
            listening = stack.enter_context(contextlib.closing(open_port(settings.host, port, "--port")))
        house = await stack.enter_async_context(running(settings))
        if port is not None:
            server = Server(health(house), Limits(connections=allow_files()))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
        stop.is_up()
        log.info(
            "working: what falls due is done%s", f"; {_address(listening)}/readyz says how it goes" if serving else ""
        )
        asked = asyncio.create_task(stop.asked.wait())
        await asyncio.wait({asked, serving} if serving else {asked}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping: what is in hand is finished or given back")
        if server and serving:
            server.should_exit = True
            await serving


@click.command()
@click.option("--no-poller", is_flag=True, help="Only serve; leave what falls due to `vuelvo work`.")
def serve(no_poller: bool) -> None:
    """Serve the widget and the webhooks, and do what falls due.

    The first run makes the database and a tenant named demo, and prints the address of a page to try it.
    """
    run(_serve)(no_poller=no_poller)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Answer /healthz, /readyz and /metrics on this port.")
def work(port: int | None) -> None:
    """Do what falls due, and nothing else. Any number of these may run on one database."""
    run(_work)(port)
