"""The agent's section of a tenant's file."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class AgentSection(BaseModel):
    """Who the agent is and how it thinks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instructions: str = Field(default="", max_length=20_000)
    """The tenant's voice: what the business is, what the agent may say."""
    model: str | None = None
    """A Pydantic AI model name such as `openai:gpt-5-mini`; without it the service's."""
    history: int = Field(default=40, ge=2, le=500)
    """How many messages of the conversation the model is given."""
    answer_timeout: float = Field(default=60, gt=0, le=600)
    """Seconds one attempt at writing may take."""
    work_timeout: float = Field(default=900, gt=0, le=3600)
    """Seconds one attempt at a follow-up's work may take."""
    unwritten: Literal["stored_words", "nothing"] = "stored_words"
    """What goes out for a follow-up when no attempt at writing it succeeded."""
