"""The command line as its users have it: each command a process, on one database."""

import json
from pathlib import Path
from typing import Any

from tests.support.process import Process, start

KEY = "a secret for the tests of the service"
TOKEN = "123456:ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"


class Shell:
    """Runs `vuelvo` on one database."""

    def __init__(self, directory: Path, database_url: str) -> None:
        self.directory = directory
        self._environ = {"VUELVO_DATABASE_URL": database_url, "VUELVO_SECRET_KEY": KEY, "ACME_TOKEN": TOKEN}

    def sets(self, **environ: str) -> None:
        """Set variables of the environment for every command."""
        self._environ |= environ

    async def start(self, *words: str, can_write: bool = False, is_anew: bool = False, **more: str) -> Process:
        environ = {**self._environ, **more}
        return await start(*words, directory=self.directory, can_write=can_write, environ=environ, is_anew=is_anew)

    async def run(self, *words: str, **environ: str) -> tuple[int, str]:
        return await _told(await self.start(*words, can_write=False, is_anew=False, **environ))

    async def run_anew(self, *words: str, **environ: str) -> tuple[int, str]:
        """Run one that is not loaded before."""
        return await _told(await self.start(*words, can_write=False, is_anew=True, **environ))

    async def json(self, *words: str) -> Any:
        code, said = await self.run(*words, "--json")
        assert code == 0, said
        return json.loads(said)


async def _told(process: Process) -> tuple[int, str]:
    code = await process.ended()
    said = "\n".join(process.said)
    assert "Traceback" not in said, said
    return code, said
