#!/usr/bin/env python3
"""Sets Vuelvo up in .venv beside this file, once, and then runs or checks it.

    python3 dev.py serve            run Vuelvo: a page to try it on http://localhost:8000
    python3 dev.py COMMAND ...      any other command of vuelvo; .venv/bin/vuelvo --help lists them
    python3 dev.py setup [--dev]    set up and stop there; --dev adds what the tests need
    python3 dev.py test [...]       run the tests; what follows goes to pytest
    python3 dev.py check            format, lint, types, direction of imports, tests: all of them, whatever fails

Needs Python 3.11 or newer and, the first time, a network.
"""
# ruff: noqa: T201 - this is a command: what it prints is for the person who typed it

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets as far as here and deserves a clear word
    sys.stderr.write(
        "Vuelvo needs Python 3.11 or newer; this is %d.%d (%s).\n" % (sys.version_info[:2] + (sys.executable,))  # noqa: UP031, RUF005
        + "Start dev.py with a newer one, for example: python3.12 dev.py\n"
    )
    sys.exit(2)

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMP = VENV / "vuelvo-setup"
UNFINISHED = "unfinished\n"
LOCKS = {"run": ROOT / "requirements.lock", "dev": ROOT / "requirements-dev.lock"}  # the second contains the first

CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
    "tests": ["pytest"],
}
AT_ONCE = ["-n", str(min(3 * (os.cpu_count() or 2) // 2 or 1, 4)), "--dist", "worksteal"]
"""The whole suite waits as much as it works, so there are more processes than cores; each has a PostgreSQL of its own."""


def main(arguments: Sequence[str]) -> int:
    command, *rest = arguments or ["--help"]
    if command in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0
    if command == "setup":
        if rest not in ([], ["--dev"]):
            print("setup takes nothing or --dev.", file=sys.stderr)
            return 2
        set_up("dev" if rest else "run")
        return 0
    if command == "test":
        set_up("dev")
        os.chdir(ROOT)
        return run_tests(rest)
    if command == "check":
        if rest:
            print("check takes nothing; arguments for pytest go to: python3 dev.py test", file=sys.stderr)
            return 2
        set_up("dev")
        os.chdir(ROOT)
        return check()
    set_up("run")
    return become_vuelvo(arguments)


def become_vuelvo(arguments: Sequence[str]) -> NoReturn:
    """Give this process to vuelvo, so that signals and the exit code are its own."""
    os.execve(BIN / "vuelvo", ["vuelvo", *arguments], environment())  # noqa: S606 - no shell is wanted


# Checking


def check() -> int:
    """Run every check to its end and say at last which failed."""
    failed = []
    for name, words in CHECKS.items():
        print(f"== {name}: {' '.join(words)}", flush=True)
        if run_tests([]) if name == "tests" else run(words):
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all well")
    return 1 if failed else 0


def run_tests(arguments: Sequence[str]) -> int:
    """Run pytest, the whole suite in several processes; with CI=true a test that did not run and pass is a failure."""
    arguments = arguments or AT_ONCE
    if os.environ.get("CI", "").lower() not in ("true", "1"):
        return run(["pytest", *arguments])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        code = run(["pytest", f"--junitxml={report}", *arguments])
        suites = ElementTree.parse(report).iter("testsuite") if report.exists() else []  # noqa: S314 - our own pytest wrote it
        skipped = sum(int(suite.get("skipped", 0)) for suite in suites)
    if skipped:
        print(f"{skipped} skipped or expected to fail, see above: with CI=true every test has to run and pass.")
    return code or (1 if skipped else 0)


def run(words: Sequence[str]) -> int:
    """Run a program of .venv and return its exit code."""
    with subprocess.Popen([BIN / words[0], *words[1:]], env=environment()) as program:
        try:
            return program.wait()
        except KeyboardInterrupt:
            program.wait()  # it was told too, and puts away what it has started
            raise


def environment() -> dict[str, str]:
    """Return the environment as an activated .venv would have it."""
    return {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


# Setting up


def set_up(level: str) -> None:
    """Bring .venv up to the lock of `level`, unless it is there already; one dev.py at a time does it.

    The stamp says so only at the very end, so a set-up that was cut off starts over with an empty .venv.
    """
    if is_set_up(level):
        return
    lock = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell("Another dev.py is setting up here; waiting for it ...")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        if not is_set_up(level):
            bring_up(level, lock)
    finally:
        os.close(lock)


def is_set_up(level: str) -> bool:
    return read_stamp() in (stamp_of(level), stamp_of("dev")) and venv_works()


def read_stamp() -> str:
    try:
        return STAMP.read_text()
    except OSError:
        return ""  # no .venv, or one that dev.py did not make


def stamp_of(level: str) -> str:
    """Name all that a set-up depends on: the place too, because the programs in .venv/bin hold its path."""
    digest = hashlib.sha256(bytes(ROOT))
    for file in (ROOT / "pyproject.toml", *LOCKS.values()):
        digest.update(file.read_bytes())
    return f"{level} {digest.hexdigest()}\n"


def bring_up(level: str, lock: int) -> None:
    if not os.access(VENV if VENV.exists() else ROOT, os.W_OK):
        give_up(f"{VENV} has to be set up, and this user may not write there: start dev.py once as its owner.")
    anew = read_stamp() == UNFINISHED or not venv_works()
    tell("Setting up in .venv, once, about a minute ..." if anew else "Bringing .venv up to date ...")
    if anew:
        make_venv(lock)
    STAMP.write_text(UNFINISHED)
    pip = [str(BIN / "python"), "-I", "-m", "pip", "--no-input", "install"]
    quietly([*pip, "--require-hashes", "-r", str(LOCKS[level])], lock)
    quietly([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], lock)
    STAMP.write_text(stamp_of(level))


def venv_works() -> bool:
    """Say whether .venv stands where it was made, and its Python is still there, new enough and has pip."""
    script = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    try:
        stands = str(BIN) in (BIN / "pip").read_text()
        python = subprocess.run([BIN / "python", "-I", "-c", script], capture_output=True, check=False)
    except OSError:
        return False
    return stands and python.returncode == 0


def make_venv(lock: int) -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        give_up(
            f"This Python ({sys.executable}) cannot make a virtual environment: its venv or ensurepip is missing.\n"
            "On Debian and Ubuntu: apt install python3-venv"
        )
    # The base, because the Python running this may be the very one in .venv that is replaced.
    base = getattr(sys, "_base_executable", None) or sys.executable
    quietly([base, "-I", "-m", "venv", "--clear", str(VENV)], lock)


def quietly(words: Sequence[str], lock: int) -> None:
    """Run one step of the set-up; show its last lines only if it fails.

    The step holds the lock too, so that it is kept while pip outlives a dev.py that was killed.
    """
    step = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"},
        pass_fds=[lock],
        check=False,
    )
    if step.returncode == 0:
        return
    out = step.stdout
    offline = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ReadTimeoutError", "ProxyError")
    reason = ""
    if any(name in out for name in offline):
        reason = " The package index cannot be reached: set-up needs a network, or an index that pip is configured for."
    last_lines = "\n".join(f"  {line}" for line in out.strip().splitlines()[-10:])
    give_up(f"{' '.join(words)}\n{last_lines}\nVuelvo is not set up.{reason} The next start tries again.")


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def give_up(words: str) -> NoReturn:
    tell(words)
    sys.exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
