"""What can go wrong at a channel's door, and at its provider's.

ChannelError
├── Refused     the request is not proved to be the provider's: 403, no row is left
├── Malformed   it is the provider's, but there is nothing in it to answer: 200, no row is left
└── NotDone     the provider did not do what an operator asked of it
"""


class ChannelError(Exception):
    """A message could not be taken in, or a provider did not do its part."""


class Refused(ChannelError):
    """The request does not prove that it comes from the provider."""


class Malformed(ChannelError):
    """The request is the provider's but holds no message of a customer."""


class NotDone(ChannelError):
    """A provider did not do what an operator asked of it, or does not say; the words are fit to be shown to them."""

    def __init__(self, words: str, *, status: int = 0, is_certain: bool = True) -> None:
        """`status` is the HTTP status of its answer, 0 without one; it is not certain where the answer is lost."""
        super().__init__(words)
        self.status, self.is_certain = status, is_certain
