"""Which model thinks."""

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel

from agent.errors import UnknownModel
from agent.models import Models, check_model

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OLLAMA_BASE_URL")


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that names no provider."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("openai-chat:local", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY"),
        ("ollama:llama3.2", "OLLAMA_BASE_URL"),
        ("groq:llama-3.3-70b-versatile", "groq"),
        ("acme:local", "Unknown model: acme:local"),
        ("local", "does not name a provider"),
    ],
)
async def test_a_name_that_leads_nowhere_is_refused_with_what_is_missing(name: str, missing: str) -> None:
    with pytest.raises(UnknownModel) as checked:
        check_model(name)
    with pytest.raises(UnknownModel) as found:
        Models(name).find()
    assert str(checked.value) == str(found.value)
    assert f"model {name!r}" in str(found.value)
    assert missing in str(found.value)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("openai-chat:local", "OPENAI_BASE_URL"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("ollama:llama3.2", "OLLAMA_BASE_URL"),
    ],
)
@pytest.mark.usefixtures("no_keys")
async def test_a_name_whose_key_or_address_is_there_is_taken(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    monkeypatch.setenv(key, "http://127.0.0.1:9/v1")
    check_model(name)
    assert Models().find(name).model_name == name.partition(":")[2]


async def test_each_model_is_made_once_and_the_tenants_goes_before_the_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    models = Models("openai-chat:local")
    first = models.find()
    assert first.model_name == "local"
    assert models.find() is models.find("openai-chat:local") is first
    assert models.find("offline") is not first
    assert models.find("offline") is models.find("offline")
    await models.close()


@pytest.mark.usefixtures("no_keys")
async def test_without_any_name_it_is_the_offline_model() -> None:
    check_model("offline")
    models = Models()
    assert models.find().model_name == "offline"
    assert models.find() is models.find("offline") is models.find("")


async def test_a_model_handed_in_is_the_default_as_it_is() -> None:
    given = TestModel()
    models = Models(given)
    assert models.find() is given
    assert models.find("offline") is not given


async def test_closed_models_hold_no_connections_and_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    models = Models("openai-chat:local")
    first = models.find()
    assert isinstance(first, OpenAIChatModel)
    assert not first.client.is_closed()
    await models.close()
    assert first.client.is_closed()
    await models.close()
    assert models.find() is not first
    await models.close()
