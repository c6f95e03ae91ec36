"""Workers that are gone, and workers nobody can say that of."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.worker import gone, worker_name

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only where the system tells of processes")


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that holds claims, and its name."""
    program = "import scheduler.worker as w, sys; print(w.worker_name(), flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_worker_that_lives_is_not_gone(child: tuple[subprocess.Popen[str], str]) -> None:
    _, name = child
    assert name.count("/") >= 3
    assert name != worker_name()
    assert gone([name, worker_name()]) == []


def test_a_worker_that_was_killed_is_gone(child: tuple[subprocess.Popen[str], str]) -> None:
    process, name = child
    process.kill()
    process.wait()
    assert gone([worker_name(), name]) == [name]


def test_a_worker_that_was_killed_is_gone_even_while_its_parent_has_not_noticed(
    child: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = child
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and still on the list of processes
    assert gone([name]) == [name]


def test_a_pid_that_was_given_again_does_not_keep_a_dead_worker_alive(
    child: tuple[subprocess.Popen[str], str],
) -> None:
    _, name = child
    before = name.rpartition("/")[0] + "/1"
    assert gone([before]) == [before]


def test_a_worker_that_this_process_may_not_look_at_is_not_called_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, signal: int) -> None:
        raise PermissionError(f"{pid} is another user's")

    name = worker_name().rsplit("/", 2)[0] + "/4194303/12345"  # where the system hides others' processes
    monkeypatch.setattr(os, "kill", refuse)
    assert gone([name]) == []


def test_nobody_is_called_gone_who_ran_elsewhere_or_whose_name_says_too_little() -> None:
    host, machine, _, start = worker_name().rsplit("/", 3)
    dead = [f"{host}/{machine}/{pid}/{start}" for pid in (4194304, 2**70)]  # more than the largest pid there is
    assert gone(dead) == dead
    assert (
        gone(
            [
                "",
                "w",
                "a/b/c",
                "session 1",
                f"{host}//4194304/{start}",
                f"{host}/{machine}x/4194304/{start}",
                f"{host}/{machine}/abc/{start}",
                f"{host}/{machine}/-1/{start}",
                f"{host}/{machine}/²/{start}",
            ]
        )
        == []
    )


def test_a_host_name_with_strokes_is_still_read(child: tuple[subprocess.Popen[str], str]) -> None:
    process, name = child
    process.kill()
    process.wait()
    odd = "rack 1/shelf 2/" + name
    assert gone([odd]) == [odd]
