"""A visitor of the widget, over plain HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx


class Visitor:
    """One session of the widget."""

    def __init__(self, http: httpx.AsyncClient, tenant: str, opened: dict[str, Any]) -> None:
        self._http, self._base = http, f"/widget/{tenant}"
        self.conversation, self._headers = opened["conversation"], {"Authorization": f"Bearer {opened['token']}"}
        self.streamed: list[dict[str, Any]] = []
        """The messages that came on the event stream."""

    @classmethod
    async def open(cls, http: httpx.AsyncClient, tenant: str = "demo", time_zone: str = "America/Bogota") -> "Visitor":
        """Open a session."""
        answer = await http.post(f"/widget/{tenant}/sessions", json={"time_zone": time_zone, "language": "en"})
        assert answer.status_code == 201, answer.text
        return cls(http, tenant, answer.json())

    def at(self, http: httpx.AsyncClient) -> "Visitor":
        """The same visitor, of a server that was started again."""
        again = Visitor.__new__(Visitor)
        again._http, again._base, again._headers = http, self._base, self._headers
        again.conversation, again.streamed = self.conversation, []
        return again

    async def say(self, text: str) -> int:
        """Send a message and return its sequence number."""
        answer = await self._http.post(
            f"{self._base}/messages", json={"text": text, "client_id": str(uuid4())}, headers=self._headers
        )
        assert answer.status_code == 202, answer.text
        return int(answer.json()["seq"])

    async def messages(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the message list."""
        answer = await self._http.get(f"{self._base}/messages", params={"after": after}, headers=self._headers)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["messages"]
        return found

    async def until(self, kind: str, count: int = 1, seconds: float = 30) -> list[dict[str, Any]]:
        """Wait until the list holds so many messages of a kind, and return those."""
        async with asyncio.timeout(seconds):
            while True:
                found = [message for message in await self.messages() if message["kind"] == kind]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Read the event stream for as long as the block runs."""
        reading = asyncio.create_task(self._listen())
        try:
            yield self.streamed
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _listen(self) -> None:
        async with self._http.stream("GET", f"{self._base}/stream", headers=self._headers, timeout=None) as answer:
            assert answer.status_code == 200
            event = ""
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: ") and event == "message":
                    self.streamed.append(json.loads(line.removeprefix("data: ")))
