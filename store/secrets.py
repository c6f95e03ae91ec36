"""Encryption at rest: what a business entrusts to the service stands in the database sealed.

AES-SIV (RFC 5297) takes no nonce: the same text sealed again for the same tenant and field gives the same words, so
that applying an unchanged file changes nothing, and no nonce can ever be used twice. What this tells someone who reads
the database is whether a secret changed between two revisions, and no more. Tenant and field are sealed in with the
text: moved to another tenant or field, it does not open.
"""

import base64
import binascii

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PREFIX = "sealed:v1:"


class WrongKey(Exception):
    """A sealed text does not open with this key, or not in this place; the message says what to do."""


class SecretBox:
    """Seals and opens texts with keys derived from one secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESSIV(self._derived("seal", 64))
        self.key_id = self._derived("key id", 4).hex()

    def seal(self, tenant: str, field: str, text: str) -> str:
        """Return the text sealed for one field of one tenant, as `sealed:v1:KEYID:BASE64`."""
        sealed = self._cipher.encrypt(text.encode(), [tenant.encode(), field.encode()])
        return f"{PREFIX}{self.key_id}:{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, tenant: str, field: str, sealed: str) -> str:
        """Return the text that was sealed. Raises WrongKey."""
        key_id, _, body = sealed.removeprefix(PREFIX).partition(":")
        if sealed.startswith(PREFIX) and key_id != self.key_id:
            raise WrongKey(
                f"{field} of tenant {tenant} was sealed with another secret key (its id is {key_id}, the present one's "
                f"{self.key_id}): set VUELVO_SECRET_KEY to the key it was sealed with, or apply the tenant's file again"
            )
        try:
            data = base64.b64decode(body, altchars=b"-_", validate=True)
            return self._cipher.decrypt(data, [tenant.encode(), field.encode()]).decode()
        except (InvalidTag, binascii.Error, ValueError) as problem:
            raise WrongKey(
                f"{field} of tenant {tenant} is not what was sealed there: its stored text was altered or moved; "
                "apply the tenant's file again"
            ) from problem

    def derive(self, purpose: str) -> str:
        """Return a token of 43 of `A-Za-z0-9_-` that belongs to a purpose: the same for the same key, else unguessable."""
        return base64.urlsafe_b64encode(self._derived(f"token {purpose}", 32)).rstrip(b"=").decode()

    def _derived(self, info: str, length: int) -> bytes:
        return HKDF(SHA256(), length, salt=None, info=f"vuelvo {info}".encode()).derive(self._key)
