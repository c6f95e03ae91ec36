"""Functions elsewhere: addresses of a tenant's that are called, signed, as if they were functions here.

An address is called at least once for a run: where its answer does not arrive, nobody knows whether it has done its work. So each
attempt bears the same `webhook-id`. What it answers:

- 2xx: done; a body of JSON is the result
- 409, 410: not wanted any more; the run is skipped
- 429, 5xx, or no answer in time: it is tried again for a day, not before a Retry-After is over
- anything else: the run has failed
"""

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from app.calls_section import CallsSection, FunctionSection
from app.context import Context
from app.functions import written
from app.outside import Answer, BadAnswer, NotNow, Outside, OutsideError
from app.signing import sign
from app.tenants_file import TenantConfig

log = logging.getLogger(__name__)

GUARD_TIMEOUT = timedelta(seconds=5)
NOT_WANTED = (409, 410)


@dataclass(frozen=True, slots=True)
class Called:
    """One function elsewhere; it is called as a function here is."""

    path: str
    tenant: str
    section: FunctionSection
    calls: CallsSection | None = field(repr=False)
    outside: Outside = field(repr=False)

    @property
    def timeout(self) -> timedelta:
        """How long a call of it may take; a little longer than it takes to say that the other server is too slow."""
        return self.section.timeout + timedelta(seconds=1)

    def read(self, payload: object) -> Any:
        """Return a payload as it takes it: any."""
        return payload

    async def call(self, given: object, ctx: Context) -> Any:
        """Call it and return its result, or `{"skipped": why}`.

        Raises NotNow for what may be tried again, TooSlow among it, BadAddress or BadAnswer for what may not.
        """
        headers = {}
        if ctx.task_id is not None:
            headers["vuelvo-task"] = str(ctx.task_id)
        if ctx.scheduled_at is not None:
            headers["vuelvo-scheduled-at"] = ctx.scheduled_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        answer = await post(
            self.outside, self.calls, self.section.url, ctx.run_id, given, headers, self.section.timeout
        )
        if answer.status in NOT_WANTED:
            return {"skipped": f"the function answered {answer.status}"}
        if answer.status == 429 or answer.status >= 500:
            raise NotNow(f"the function answered {answer.status}", answer.retry_after)
        if 300 <= answer.status < 400:
            raise BadAnswer(
                f"the function answered {answer.status}, which is not followed: write where it leads as its url"
            )
        if not 200 <= answer.status < 300:
            raise BadAnswer(f"the function answered {answer.status}")
        if answer.unread is not None and not ctx.is_scheduled_fire:
            raise BadAnswer(f"the function has done its work, but {answer.unread}")
        if answer.unread is not None:  # it has run all the same
            log.warning("%s of tenant %s is called without a result: %s", self.path, self.tenant, answer.unread)
        return _result(answer)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A guard that told neither yes nor no. It is neither true nor false: whoever asks decides what follows."""

    why: str

    def __bool__(self) -> NoReturn:
        raise TypeError("whether to proceed is not known: compare with True and with False")


async def call_guard(outside: Outside, tenant: TenantConfig, url: str, what: Mapping[str, Any]) -> bool | Unknown:
    """Ask an address of a tenant's whether what was booked is still wanted: `{"proceed": true}` or `{"proceed": false}`.

    `what` is sent as JSON. Whatever else is answered, and no answer within five seconds, is Unknown.
    """
    try:
        answer = await post(outside, tenant.calls, url, f"guard:{secrets.token_hex(12)}", what, {}, GUARD_TIMEOUT)
    except OutsideError as problem:
        return Unknown(str(problem))
    if not 200 <= answer.status < 300:
        return Unknown(f"it answered {answer.status}")
    said = _result(answer)
    if isinstance(said, dict) and isinstance(said.get("proceed"), bool):
        return bool(said["proceed"])
    return Unknown(answer.unread or 'it did not answer {"proceed": true} or {"proceed": false}')


async def post(
    outside: Outside,
    calls: CallsSection | None,
    url: str,
    id: str,
    payload: object,
    headers: Mapping[str, str],
    limit: timedelta,
) -> Answer:
    """Post a payload to an address of a tenant's, signed, and return what it answers. Raises OutsideError."""
    if calls is None:
        raise BadAnswer("it is not called unsigned: add calls.secret to the tenant's file")
    body = json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
    # The other server compares this with its own clock, so it is the real time, whatever the database's says.
    signature = sign(calls.secrets, id, datetime.now(UTC), body)
    sent = {"content-type": "application/json", **headers, **signature}
    return await outside.call("POST", url, limit=limit, headers=sent, body=body)


def _result(answer: Answer) -> Any:
    """Return an answer's JSON; None where there is none, or none that can be kept."""
    try:
        said = json.loads(answer.body or b"null")
        written(said)
    except (ValueError, RecursionError):
        return None
    return said
