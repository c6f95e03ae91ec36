"""Who a visitor is: a token that the tenant's own server has signed for its user.

A JSON Web Token (RFC 7519), signed with HMAC-SHA256 and nothing else, whatever it says of itself. It names the user (`sub`),
this tenant (`aud`) and its end (`exp`), at most a day ahead; `name` may tell what the user is called. Neither the token nor
what it says is ever logged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt

from channels.web.reach import VERIFIED

LONGEST = 4096
"""Characters of a token."""
LONGEST_USER = 200
LONGEST_NAME = 100
FURTHEST = timedelta(hours=24)
"""How far ahead a token may end."""
LEEWAY = timedelta(seconds=60)
"""By how much the clocks of two servers may differ."""


class NotProved(Exception):
    """The token proves nothing; the message says why, and repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the tenant's, proved."""

    user: str
    name: str | None = None

    @property
    def address(self) -> str:
        """The address of the user's contact."""
        return VERIFIED + self.user


def prove(token: object, secrets: Sequence[str], tenant: str, now: datetime) -> Identity:
    """Return who a token of a tenant's server names, by one of its secrets. Raises NotProved."""
    if not isinstance(token, str) or not token.isascii() or not 0 < len(token) <= LONGEST:
        raise NotProved(f"it must be a token of at most {LONGEST} characters")
    for secret in secrets:
        try:
            return _identity(_signed(token, secret, tenant), now)
        except jwt.InvalidSignatureError:
            continue
    raise NotProved("it is not signed with one of the tenant's secrets")


def _signed(token: str, secret: str, tenant: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            secret,
            algorithms=["HS256"],
            audience=tenant,
            # Times are compared here with the database's clock.
            options={
                "require": ["exp", "aud", "sub"],
                "strict_aud": True,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
            },
        )
    except jwt.InvalidSignatureError:
        raise
    except jwt.MissingRequiredClaimError as problem:
        raise NotProved(f"it has no {problem.claim}") from None
    except jwt.InvalidAudienceError:
        raise NotProved("its aud is not this tenant's name") from None
    except jwt.InvalidAlgorithmError:
        raise NotProved("it must be signed with HS256") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
        raise NotProved("it is not a JSON Web Token") from None
    return claims


def _identity(claims: dict[str, Any], now: datetime) -> Identity:
    ends = _seconds(claims["exp"])
    if ends is None:
        raise NotProved("its exp is not a number of seconds")
    present = now.timestamp()
    if ends <= present - LEEWAY.total_seconds():
        raise NotProved("it has expired")
    if ends > present + (FURTHEST + LEEWAY).total_seconds():
        raise NotProved("its exp is more than 24 hours ahead")
    begins = _seconds(claims.get("nbf", 0))
    if begins is None or begins > present + LEEWAY.total_seconds():
        raise NotProved("it is not valid yet")
    user = claims["sub"]
    if not isinstance(user, str) or not 1 <= len(user) <= LONGEST_USER or not _is_storable(user):
        raise NotProved(f"its sub must be a text of 1 to {LONGEST_USER} characters")
    name = claims.get("name")
    if name is not None and (not isinstance(name, str) or not _is_storable(name)):
        raise NotProved("its name must be a text")
    return Identity(user, " ".join(name.split())[:LONGEST_NAME] or None if name else None)


def _seconds(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return given if abs(given) < 2**53 else None  # and no NaN, which is less than nothing


def _is_storable(text: str) -> bool:
    """Tell whether PostgreSQL can store it, and can find it in an index."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
