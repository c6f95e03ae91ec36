"""How long the main job's steps take: booking, from a POST to the reply's row, `vuelvo --help`.

`python -m benchmarks.main_job [--runs N]` starts its own embedded PostgreSQL (with its durable settings) and prints
medians. The model is a function that answers at once, so what is measured is ours and Pydantic AI's.
"""

import argparse
import asyncio
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import httpx
import uvicorn
from pydantic import SecretStr
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from sqlalchemy import text

from app.http import application
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import Running, apply_tenants, running
from scheduler.book import Booking, book
from store import contacts, conversations
from store.contacts import Contact

DEMO = {
    "tenant": "demo",
    "name": "Demo",
    "time_zone": "UTC",
    "channels": {"web": {"limits": {"sessions_an_hour": 1_000_000}}},
}
"""Each run opens a session, all from one address."""


def instant_model(tell: Callable[[], None] = lambda: None) -> FunctionModel:
    """Return a model that answers at once, whole and in a stream; each time it calls `tell`."""

    def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tell()
        return ModelResponse(parts=[TextPart("Here is your answer.")])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        tell()
        yield "Here is your answer."

    return FunctionModel(whole, stream_function=stream)


async def timed(step: Callable[[], Awaitable[object]], runs: int) -> list[float]:
    """Return how long each run of a step took, in milliseconds, after a tenth as many to warm up."""
    for _ in range(max(runs // 10, 3)):
        await step()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        await step()
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def report(name: str, taken: list[float]) -> None:
    """Print one line of the table."""
    cuts = statistics.quantiles(taken, n=100)
    print(f"| {name} | {statistics.median(taken):.1f} | {cuts[98]:.1f} | {len(taken)} |")


async def measure_booking(house: Running, runs: int) -> list[float]:
    """One insert and its commit."""
    service = house.service
    async with service.database.transaction() as connection:
        contact = await contacts.meet(connection, Contact("demo", "web", "bench", "bench"))
        conversation = await conversations.open_conversation(connection, "demo", contact, None)

    async def step() -> None:
        async with service.database.transaction() as connection:
            await book(
                connection,
                service.clock,
                Booking("demo", "followup", timedelta(days=30), conversation, "web", {"about": "call Ana"}),
            )

    return await timed(step, runs)


async def measure_reply(house: Running, http: httpx.AsyncClient, runs: int) -> list[float]:
    """From sending the POST to the moment the reply's row is committed, each in a conversation of its own.

    The row's commit is heard as the hint that follows it, and its time is taken by this process.
    """
    numbers = iter(range(10**9))

    async def step() -> float:
        opened = (await http.post("/widget/demo/sessions", json={})).json()
        headers = {"Authorization": f"Bearer {opened['token']}"}
        body = {"text": "hello", "client_id": str(next(numbers))}
        with house.service.signals.subscribe(f"message {opened['conversation']}") as hints:
            began = time.perf_counter()
            posting = asyncio.create_task(http.post("/widget/demo/messages", json=body, headers=headers))
            while True:
                await hints.wait(5)
                heard = time.perf_counter()
                async with house.service.database.transaction() as connection:
                    last = await connection.scalar(
                        text("select last_seq from conversations where id = :id"), {"id": opened["conversation"]}
                    )
                if last == 2:
                    break
            assert (await posting).status_code == 202
        return (heard - began) * 1000

    for _ in range(max(runs // 10, 3)):
        await step()
    return [await step() for _ in range(runs)]


async def measure_model_run(runs: int) -> list[float]:
    """What Pydantic AI itself takes for a run with the instant model, for comparison."""
    agent = Agent(instant_model())
    return await timed(lambda: agent.run("hello"), runs)


def measure_help(runs: int) -> list[float]:
    """`vuelvo --help`, as a whole process."""
    command = [str(Path(sys.executable).with_name("vuelvo")), "--help"]
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def measure(runs: int) -> None:
    """Run everything and print the table."""
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as directory:
        settings = Settings(data_dir=Path(directory), secret_key=SecretStr("a secret key for nothing but benchmarks"))
        async with running(settings, model=instant_model()) as house:
            await apply_tenants(house.service, [TenantConfig.model_validate(DEMO)])
            server = uvicorn.Server(uvicorn.Config(application(house), port=0, lifespan="off", log_level="warning"))
            serving = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn gives no signal
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            print(f"Python {platform.python_version()}, {platform.machine()}, embedded PostgreSQL, durable settings\n")
            print("| step | p50 ms | p99 ms | runs |\n|---|---|---|---|")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                report("booking: one insert, committed", await measure_booking(house, runs * 5))
                report("POST to the reply's row, instant model", await measure_reply(house, http, runs))
            report("of which Pydantic AI's own run", await measure_model_run(runs))
            report("`vuelvo --help`", measure_help(min(runs, 20)))
            server.should_exit = True
            await serving


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    asyncio.run(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
