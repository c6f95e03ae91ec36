"""What can go wrong at a channel's door.

ChannelError
├── Refused     the request is not proved to be the provider's: 403, no row is left
└── Malformed   it is the provider's, but there is nothing in it to answer: 200, no row is left
"""


class ChannelError(Exception):
    """A message could not be taken in."""


class Refused(ChannelError):
    """The request does not prove that it comes from the provider."""


class Malformed(ChannelError):
    """The request is the provider's but holds no message of a customer."""
