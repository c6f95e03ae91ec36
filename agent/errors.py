"""What can go wrong while the agent writes.

AgentError
├── ModelUnavailable   the model did not answer (down, rate-limited): trying again later may help
│   └── TooSlow        it did not answer in its time: whoever waits has waited long enough
├── UnknownModel       a model's name leads nowhere: it is for the operator to mend
└── NothingToSay       the model answered, but nothing of it may be said (empty, an echo of its instructions)
HandedOver             nothing went wrong: the agent has handed the conversation to a person, and says nothing in this run
"""


class AgentError(Exception):
    """The agent could not write an answer."""


class ModelUnavailable(AgentError):
    """The model did not answer."""


class TooSlow(ModelUnavailable):
    """The model did not answer in the time it has."""


class NothingToSay(AgentError):
    """What the model wrote cannot be said."""


class UnknownModel(AgentError):
    """A model name that leads nowhere; the message says what to do."""


class HandedOver(Exception):
    """The agent has handed the conversation to a person: that is committed, and the run is over."""
