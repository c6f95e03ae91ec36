"""Which model thinks: the tenant's, else the service's, else the offline one."""

from typing import Any

import pydantic_ai
from pydantic_ai.models import Model, infer_model

from agent.errors import UnknownModel
from agent.offline import offline_model

OFFLINE = "offline"
"""The name of the model that needs no provider."""


def check_model(name: str) -> None:
    """Raise UnknownModel when a name cannot be a model's: unknown provider, missing key or library."""
    _infer(name)


def _infer(name: str) -> Model[Any]:
    if name == OFFLINE:
        return offline_model()
    provider, _, rest = name.partition(":")
    if not provider or not rest:
        raise UnknownModel(f"model {name!r} does not name a provider and a model: write, for example, openai:{name}")
    try:
        return infer_model(name)
    except ImportError as problem:
        raise UnknownModel(f"model {name!r} needs a library that is not installed: {problem}") from problem
    except Exception as problem:  # each provider has its own way of missing its key
        # What follows is advice for programs that use the library, not for who configures this one.
        words = str(problem).partition(" or pass it")[0].partition("\n")[0]
        raise UnknownModel(f"model {name!r} cannot be used: {words}") from problem


class Models:
    """Makes each named model once, since each has its own connections."""

    def __init__(self, default: str | Model[Any] | None = None) -> None:
        pydantic_ai.BANNER_ENABLED = False  # a terminal here belongs to a conversation
        self._default = default
        self._made: dict[str, Model[Any]] = {}

    def find(self, name: str | None = None) -> Model[Any]:
        """Return the model of this name, or the default. Raises UnknownModel."""
        chosen = name or self._default
        if isinstance(chosen, Model):
            return chosen
        key = chosen or OFFLINE
        if key not in self._made:
            self._made[key] = _infer(key)
        return self._made[key]

    async def close(self) -> None:
        """Close the connections of the models made here; one that is found again afterwards is made anew."""
        while self._made:
            _, model = self._made.popitem()
            async with model:  # leaving is what closes
                pass
