"""The `functions` and `calls` sections of a tenant's file: what of the tenant's is called, and how it knows that we call."""

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from app.deferred import PATH
from app.outside import checked_url
from app.signing import LARGEST_KEY, LEAST_KEY, NoSecret, key_of
from channels.web.section import Duration

TIMEOUT = timedelta(seconds=30)
LONGEST_TIMEOUT = timedelta(minutes=5)


def _path(given: str) -> str:
    if PATH.fullmatch(given) is None:
        raise ValueError("a function's path begins with / and has letters, digits, _ . ~ / and -, 200 at most")
    return given


def _url(given: str) -> str:
    checked_url(given)
    return given


def _timeout(span: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= span <= LONGEST_TIMEOUT:
        raise ValueError("write 1 second to 5 minutes, such as 30s")
    return span


def _secret(given: SecretStr) -> SecretStr:
    try:
        size = len(key_of(given.get_secret_value()))
    except NoSecret:
        size = 0
    if not given.get_secret_value().startswith("whsec_") or not LEAST_KEY <= size <= LARGEST_KEY:
        raise ValueError(
            f"it is whsec_ and {LEAST_KEY} to {LARGEST_KEY} bytes in base64: make one with"
            ' `echo "whsec_$(openssl rand -base64 32)"`'
        )
    return given


Secret = Annotated[SecretStr, AfterValidator(_secret)]
FunctionPath = Annotated[str, AfterValidator(_path), Field(json_schema_extra={"pattern": f"^{PATH.pattern}$"})]


class FunctionSection(BaseModel, extra="forbid", frozen=True):
    """A function elsewhere."""

    url: Annotated[str, AfterValidator(_url)]
    timeout: Annotated[Duration, AfterValidator(_timeout)] = TIMEOUT
    """For one call of it, from the lookup of its host to the end of its answer."""


class CallsSection(BaseModel, extra="forbid", frozen=True):
    """How calls to the tenant's addresses are signed."""

    secret: Secret
    previous_secret: Secret | None = None
    """While the secret is being changed: calls are signed with both."""

    @property
    def secrets(self) -> list[str]:
        """What a call is signed with."""
        each = (self.secret, self.previous_secret)
        return [one.get_secret_value() for one in each if one is not None]
