"""An independent Bot API in which people write and read, and a bot's token can be revoked."""

import json
from typing import Any

from aiohttp import web
from lo_bot_api_emulator import LoBotApiEmulator


class TelegramServer(LoBotApiEmulator):  # type: ignore[misc]  # it ships no types
    """The emulator, which also remembers what was sent; serve its `app()`."""

    def __init__(self) -> None:
        super().__init__(allow_insecure_loopback_webhooks=True)
        self.sent: list[dict[str, str]] = []
        """The fields of each message it took, and `token`, the bot's that sent it."""
        self.begun: list[str] = []
        """The methods called, answered or not yet."""
        self.revoked: set[str] = set()
        """Tokens that are refused."""

    async def says(self, text: str, *, token: str, **message: Any) -> None:
        """Let Ana write to a bot; returns when a webhook, if one is set, has been called."""
        ana = {"id": 42, "is_bot": False, "first_name": "Ana", "language_code": "en"}
        usual = {"message_id": 5, "date": 1, "chat": {"id": 42, "type": "private"}, "from": ana, "text": text}
        await self.enqueue_update({"message": usual | message}, token=token)

    def count(self, method: str, status: int = 200) -> int:
        """Return how many calls of a method were answered so."""
        return sum(call["method"] == method and call["status"] == status for call in self.requests)

    async def read_request(self, request: web.Request) -> Any:
        fields, uploads = await super().read_request(request)
        # What Telegram knows and the emulator does not.
        fields.pop("link_preview_options", None)
        if isinstance(kinds := fields.get("allowed_updates"), str):
            fields["allowed_updates"] = json.dumps(
                [one for one in json.loads(kinds) if one != "stopped_message_generation"]
            )
        return fields, uploads

    async def handle(self, request: web.Request) -> web.Response:
        token = request.match_info["token"]
        self.begun.append(request.match_info["method"])
        if token in self.revoked:
            self.requests.append({"method": request.match_info["method"], "status": 401})
            return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)
        answer: web.Response = await super().handle(request)
        if request.match_info["method"] == "sendMessage" and answer.status == 200:
            fields = await request.post()
            self.sent.append({**{name: str(value) for name, value in fields.items()}, "token": token})
        return answer
