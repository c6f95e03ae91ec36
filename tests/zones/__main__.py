"""Every change of every zone since 2000, minute by minute: `python -m tests.zones [--expressions N] [--seed N] [--zone NAME]`."""

import argparse
import random
import sys
import time
from datetime import timedelta
from zoneinfo import ZoneInfo, available_timezones

from scheduler.cron import parse
from scheduler.errors import BadSchedule
from tests.zones.expressions import an_expression
from tests.zones.oracle import changes, minutes_of, walk

AROUND = timedelta(days=1, hours=12)


def main() -> int:
    """Compare, print what differs, and return 1 where anything did."""
    options = argparse.ArgumentParser()
    options.add_argument("--expressions", type=int, default=3, help="for each change")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--zone", help="only this one")
    given = options.parse_args()
    dice = random.Random(given.seed)
    begun = time.monotonic()
    compared = runs = wrong = 0
    known: set[tuple[object, ...]] = set()
    for name in [given.zone] if given.zone else sorted(available_timezones()):
        zone = ZoneInfo(name)
        for change in changes(zone):
            before, after = ((change - timedelta(minutes=1)).astimezone(zone), change.astimezone(zone))
            alike = (change, before.utcoffset(), after.utcoffset())
            if alike in known:
                continue  # a zone of another name
            known.add(alike)
            start, end = change - AROUND, change + AROUND
            minutes = minutes_of(zone, start, end)
            for _ in range(given.expressions):
                expression, fields = an_expression(dice, near=before.hour)
                try:
                    cron = parse(expression, zone)
                except BadSchedule:
                    continue
                expected = walk(fields, minutes, start)
                found = []
                for run in cron.runs(start - timedelta(microseconds=1)):
                    if run.at >= end:
                        break
                    found.append(run.at)
                compared, runs = compared + 1, runs + len(found)
                if found != expected:
                    wrong += 1
                    odd = sorted(set(found) ^ set(expected))[:4]
                    print(f"{expression!r} in {name} around {change}: {odd}", file=sys.stderr)  # noqa: T201
    seconds = time.monotonic() - begun
    print(f"{len(known)} changes, {compared} comparisons, {runs} runs, {wrong} wrong, {seconds:.0f} s")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
