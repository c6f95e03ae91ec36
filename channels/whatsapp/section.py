"""The `whatsapp` section of a tenant's file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from channels.message import OnUnknown

SENDER = re.compile(r"whatsapp:\+[1-9][0-9]{6,14}")


def _sender(value: object) -> object:
    if isinstance(value, int):
        raise ValueError('put the number in quotes, or YAML drops its plus sign: "+14155238886"')
    if not isinstance(value, str):
        return value
    address = value if value.startswith("whatsapp:") else f"whatsapp:{value}"
    if not SENDER.fullmatch(address):
        raise ValueError('write the sender with its plus sign and no spaces, as in "+14155238886"')
    return address


def _like(pattern: str, words: str) -> tuple[AfterValidator, FieldInfo]:
    """Return what checks a text by a pattern, says in words what it should be, and tells editors the pattern."""

    def check(given: str) -> str:
        if re.fullmatch(pattern, given) is None:
            raise ValueError(words)
        return given

    return AfterValidator(check), Field(json_schema_extra={"pattern": f"^{pattern}$"})


HEX = "32 digits and letters a-f"
Token = Annotated[SecretStr, Field(min_length=1)]


Word = Literal["name", "about", "text", "business", "time"]
"""What can stand in a template's place: the customer's name, what the message is about, its whole text, the business's
name, the local time it was promised for."""


class Template(BaseModel, extra="forbid", frozen=True):
    """A text that Meta has approved, by its number at Twilio.

    One with `text` in a place says the message itself, where it fits in; any other tells that a message is waiting, which
    follows when the customer taps its button or writes.
    """

    sid: Annotated[str, *_like("HX[0-9a-fA-F]{32}", f"this is not a template of Twilio: HX and {HEX}")]
    language: Annotated[str, *_like("[a-z]{2}", "write two small letters, as in es")]
    purpose: Literal["followup", "notice"] = "followup"
    variables: Mapping[
        Annotated[str, *_like("[1-9][0-9]?", 'a place is named by its number, from 1 on, as in "1"')], Word
    ] = {}

    @property
    def is_whole(self) -> bool:
        """Whether it says the message itself."""
        return "text" in self.variables.values()


class WhatsAppSection(BaseModel, extra="forbid", frozen=True):
    """One tenant's WhatsApp sender at Twilio. What is wrong with it is said without repeating any value."""

    account_sid: Annotated[str, *_like("AC[0-9a-fA-F]{32}", f"this is not an account SID of Twilio: AC and {HEX}")]
    auth_token: Token
    previous_auth_token: Token | None = None
    """While a token is being rotated: webhooks signed with it are still taken, nothing is sent with it."""
    signature: Literal["sha1", "sha256"] = "sha1"
    """How webhooks are signed: with the auth token; or only with a key that Twilio keeps for that, and SHA-256."""
    signing_key: Token | None = None
    """That key's secret. With `sha1`, what is signed with it is taken too, so that the one can follow the other."""
    previous_signing_key: Token | None = None
    """While the key is being rotated, as with the token."""
    sender: Annotated[str, BeforeValidator(_sender)]
    """`whatsapp:+14155238886`; the prefix may be left out in the file."""
    unknown: OnUnknown = "at_least_once"
    """Twilio is asked twice first."""
    templates: tuple[Template, ...] = ()
    """What can be sent when more than 24 hours have passed since the customer wrote. Of several that fit, the first."""
    per_second: Annotated[int, Field(ge=1, le=500)] = 80
    """Messages that each process sends at most; the sender's own limit at Twilio is 80 unless it was raised."""
    hold_days: Annotated[int, Field(ge=1, le=400)] = 30
    """For so long a message that cannot be sent waits for the customer to write."""

    @model_validator(mode="after")
    def _has_what_it_checks_with(self) -> Self:
        if self.signature == "sha256" and self.signing_key is None:
            raise ValueError("signature: sha256 needs the secret of Twilio's shared key as signing_key")
        if self.previous_signing_key is not None and self.signing_key is None:
            raise ValueError("previous_signing_key is the one before signing_key, which is missing")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _keep_values_out_of_errors(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # `hide_input_in_errors` would do for this model alone, but the file that holds it decides, and a token under a
        # misspelt name would be printed.
        try:
            return handler(data)
        except ValidationError as error:
            clean = [
                InitErrorDetails(
                    type=PydanticCustomError("whatsapp", "{said}", {"said": line["msg"]}),
                    loc=line["loc"],
                    input="(not shown)",
                )
                for line in error.errors(include_input=False, include_url=False)
            ]
        raise ValidationError.from_exception_data(cls.__name__, clean)


def wrong_templates(
    section: WhatsAppSection | None, languages: Sequence[str]
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield where among a section's templates one stands by which nothing could be sent, and why, as the file alone shows.

    Only a file that is applied is refused for it: what was stored before goes on being read.
    """
    for index, template in enumerate(section.templates if section else ()):
        if template.language not in languages:
            spoken = ", ".join(languages)
            yield (index, "language"), f"this tenant speaks {spoken}: add {template.language} to languages first"
        numbers = {int(number) for number in template.variables}
        missing = ", ".join(str(number) for number in range(1, max(numbers, default=0)) if number not in numbers)
        if missing:
            are = "are" if "," in missing else "is"
            yield (index, "variables"), f"its places begin at 1 and leave none out: {missing} {are} missing"
