"""Who is measured: each does the same work in its own way, in a module of its name."""

from importlib import import_module

from benchmarks.contestants.contestant import Contestant

__all__ = ["NAMES", "Contestant", "find"]

NAMES = ("raw", "vuelvo", "pgqueuer", "procrastinate")


def find(name: str) -> Contestant:
    """Return a contestant; only its own libraries are loaded."""
    found: Contestant = import_module(f"{__name__}.{name}").CONTESTANT
    return found
