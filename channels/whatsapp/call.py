"""Calls to Twilio: its own client, over connections of ours."""

import math
import re
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import SecretStr

from channels.whatsapp.section import WhatsAppSection

BEFORE_THE_REQUEST = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""What is raised while nothing has left the house yet."""
LONGEST_WAIT = 86_400.0
"""Seconds that Twilio is believed to want us to wait: nothing there is counted over more than a day."""
_NUMBER = re.compile(r"\+?[0-9](?:[ ().-]?[0-9]){6,}")
_LIBRARYS_WORDS = re.compile(r"Unable to \w+ (?:record|page)")


class Call:
    """One request of twilio's client, over our own connections.

    The library's own asynchronous transport does not keep its timeout, and on an error the answer's headers are lost. This
    one keeps both, one object a call, and can be pointed at another server.
    """

    is_async = True

    def __init__(self, http: httpx.AsyncClient, api_url: str | None) -> None:
        """`api_url` is another server that stands for all of Twilio's."""
        self._http = http
        self._api_url = api_url
        self.status = 0
        """The answer's HTTP status; 0 before there is one."""
        self.retry_after: float | None = None
        """Seconds Twilio asked us to wait."""

    async def request(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,
        allow_redirects: bool = False,
    ) -> Any:
        """Make the request and return twilio's Response; `timeout` and `allow_redirects` are the caller's affair."""
        from twilio.http.response import Response  # noqa: PLC0415 - brings in requests

        if self._api_url is not None:
            url = self._api_url.rstrip("/") + httpx.URL(url).raw_path.decode()
        is_json = (headers or {}).get("Content-Type") == "application/json"
        body: dict[str, Any] = {"json": data} if is_json else {"data": data}
        answer = await self._http.request(method, url, params=params, headers=headers, auth=auth, **body)
        self.status = answer.status_code
        self.retry_after = _seconds(answer.headers.get("Retry-After"))
        return Response(answer.status_code, answer.text, answer.headers)


def client_of(section: WhatsAppSection, call: Call) -> Any:
    """Return twilio's client for a tenant's account, which makes one request by `call`. The first time, it is slow."""
    from twilio.rest import Client  # noqa: PLC0415 - slow, and few tenants need it

    token = section.auth_token.get_secret_value()
    # An empty mapping would make it read TWILIO_REGION and TWILIO_EDGE from the environment.
    return Client(section.account_sid, token, http_client=call, environment={"TWILIO_REGION": ""})


def shown(section: WhatsAppSection, said: object) -> str:
    """Return what Twilio or the network said, fit for an operator: short, without token or phone number."""
    text = _LIBRARYS_WORDS.sub("", " ".join(str(said or "").split()), count=1).strip(" .:")
    for _, token in section:
        if isinstance(token, SecretStr):
            text = text.replace(token.get_secret_value(), "[token]")
    return _NUMBER.sub(lambda found: f"…{found[0][-2:]}", text)[:200]


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:  # absent, or a date
        return None
    return min(seconds, LONGEST_WAIT) if math.isfinite(seconds) and seconds >= 0 else None
