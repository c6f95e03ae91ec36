"""A worker's name, from which another process on the same machine can tell that it is gone.

`HOST/MACHINE/PID/START`: MACHINE is the boot and the pid namespace, so containers that share a host name are told apart;
START is when the process began, so a pid that was given again is told apart. Where the system does not say (no /proc),
MACHINE is empty and only the lease decides.
"""

import os
import socket
from collections.abc import Iterable
from pathlib import Path


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    try:
        # The name, in brackets, may hold blanks; after it come the state and, as the 22nd field of the line, the start in
        # clock ticks since boot. A zombie has died: only its parent has not noticed yet.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except (OSError, ValueError, IndexError):
        return None


def _is_hidden(pid: int) -> bool:
    """Tell whether there may be such a process all the same: some systems hide other users' processes."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def worker_name() -> str:
    """Return this process's name as a holder of claims."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{_machine()}/{pid}/{_started(pid) or 0}"


def gone(workers: Iterable[str]) -> list[str]:
    """Return those of these workers that ran on this machine and are provably no more."""
    machine = _machine()
    dead = []
    for worker in workers:
        parts = worker.rsplit("/", 3)
        if len(parts) != 4 or not machine or parts[1] != machine or not parts[2].isdecimal():
            continue
        pid, started = int(parts[2]), parts[3]
        now = _started(pid)
        if now != started and not (now is None and _is_hidden(pid)):
            dead.append(worker)
    return dead
