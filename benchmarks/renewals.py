"""Renewals: a file of many lines is taken in, by a `vuelvo renewals import` process of its own, and again when nothing is new.

`python -m benchmarks.renewals WORD…` is that process: it does what `vuelvo renewals WORD…` does, and says last how long that
took and how much memory it needed. Both from its first line on, with all that it loads.
"""

import asyncio
import csv
import json
import os
import resource
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.measures import Measure
from benchmarks.server import Server, own_server

TENANT = "broker"
KEY = "a secret key for nothing but benchmarks"
CONFIG: dict[str, Any] = {
    "tenant": TENANT,
    "name": "Broker",
    "time_zone": "America/Bogota",
    "languages": ["es", "en"],
    "hours": {"open": {"mon-fri": "09:00-19:00", "sat": "10:00-14:00"}, "days_off": ["2026-12-25", "2027-01-01"]},
    "cadences": {
        "policy": {
            "steps": [
                {"offset": "-6w", "about": "the policy of the {car} ends on {due}: ask whether to renew it"},
                {"offset": "-2w", "text": {"es": "{name}, su póliza del {car} acaba el {due}."}},
                {"offset": "-3d", "text": {"es": "{name}, su póliza acaba el {due}."}, "by_due": True},
            ]
        }
    },
}
FIRST = 60
"""Days from now until the first is due, so that every step of each is to come."""
SPREAD = 250
"""Days over which they are due."""


def write(file: Path, rows: int, *, later: int = 0) -> None:
    """Write a file of so many renewals, due `later` days later than usual."""
    first = date.today() + timedelta(days=FIRST + later)  # noqa: DTZ011 - a day more or less is none
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["Póliza", "Vencimiento", "Nombre", "WhatsApp", "Car", "Plate", "Consentimiento"])
        for number in range(rows):
            due = first + timedelta(days=number % SPREAD)
            told = (
                f"Cliente {number}",
                f"+57300{number:07}",
                "Renault Logan",
                f"ABC{number % 1000:03}",
                number % 3 and "sí",
            )
            writer.writerow([f"POL-{number:07}", due, *told])


async def renewals(runs: int, rows: int, server: Server | None = None) -> list[Measure]:
    """Return how long files are taken in, and with how much memory: one that is new, the same again, and one in which all has moved."""
    if server is None:
        async with own_server() as own:
            return await renewals(runs, rows, own)
    seconds: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        async with server.database() as name:
            for what, (took, needed) in (await _take_in(server.address(name), rows)).items():
                seconds[what].append(took)
                memory[what].append(needed)
    return [
        Measure(f"a file of {rows:,} renewals, three steps each", "s", seconds, is_less_better=True),
        Measure(f"a file of {rows:,} renewals: the process's peak memory", "MB", memory, is_less_better=True),
    ]


async def _take_in(url: str, rows: int) -> dict[str, tuple[float, float]]:
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as place:
        directory = Path(place)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VUELVO_")},
            "VUELVO_DATABASE_URL": url,
            "VUELVO_SECRET_KEY": KEY,
            "VUELVO_DATA_DIR": place,
        }
        (directory / "broker.yaml").write_text(json.dumps(CONFIG))
        await _run(
            environ, "-c", "from app.cli import main; main()", "tenants", "apply", str(directory / "broker.yaml")
        )
        file, later = directory / "renewals.csv", directory / "later.csv"
        write(file, rows)
        write(later, rows, later=1)
        found = {}
        for what, given, became in (
            ("new", file, "new"),
            ("the same again", file, "unchanged"),
            ("all moved", later, "moved"),
        ):
            words = ("import", str(given), "--tenant", TENANT, "--cadence", "policy", "--by", "a benchmark", "--json")
            said = await _run(environ, "-m", "benchmarks.renewals", *words)
            report, figures = json.loads(said.rpartition("\n")[0]), json.loads(said.rpartition("\n")[2])
            if report[became] != rows:
                raise RuntimeError(f"of {rows} lines became {report}")
            found[what] = (figures["seconds"], figures["megabytes"])
        return found


async def _run(environ: dict[str, str], *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=PIPE, env=environ, cwd=Path(__file__).parents[1]
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}; see above")
    return said.decode().strip()


def main() -> None:
    """Do what `vuelvo renewals` does, and say what it took."""
    began = time.perf_counter()
    from app.cli.renewals import renewals as command  # noqa: PLC0415 - what it takes to load is counted

    command(sys.argv[1:], standalone_mode=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KB on Linux
    print(json.dumps({"seconds": time.perf_counter() - began, "megabytes": peak}))


if __name__ == "__main__":
    main()
