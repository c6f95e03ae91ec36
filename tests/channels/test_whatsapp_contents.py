"""A tenant's templates at Twilio: what Meta would refuse, what there is, and a new one submitted."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from channels.errors import NotDone
from channels.whatsapp.contents import SAMPLES, Content, Contents, Draft, gaps, judge, problems, usual_places
from channels.whatsapp.section import Template
from channels.whatsapp.templates import fill
from tests.channels.test_whatsapp_outbound import section_for
from tests.support.twilio_server import BAD_GATEWAY, Accept, Answer, Drop, Hang, Reject, TwilioServer

READY = "Hello {{1}}, your answer about {{2}} is ready. Tap the button and you will have it here."
SID = "HX" + "1" * 32


@pytest.fixture
async def twilio() -> AsyncIterator[TwilioServer]:
    async with TwilioServer() as server:
        yield server


@pytest.fixture
async def contents(twilio: TwilioServer) -> AsyncIterator[Contents]:
    async with Contents(section_for(twilio), twilio.url, timeout=1) as contents:
        yield contents


def draft(body: str = READY, **more: Any) -> Draft:
    given = {"name": "answer_ready", "language": "en", "button": "Show it", "places": usual_places(body)}
    return Draft(body=body, **given | more)


# What Meta would refuse


@pytest.mark.parametrize(
    "body",
    [
        READY,
        "We have news for you. Write to us and you will have it here.",
        "About {{1}}, the answer is: {{3}}, as {{2}} would have it, thank you for your patience with all of us.",
        "Hola {{1}}, ya tenemos la respuesta sobre {{2}}.\nToque el botón y la recibirá aquí.",
        "¡Olá, {{1}}! A resposta sobre {{2}} está pronta. Toque no botão para recebê-la.",
        "x" * 1024,
    ],
)
def test_a_text_that_meta_may_take_is_taken(body: str) -> None:
    assert list(problems(draft(body))) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "no words"),
        ("  \n ", "no words"),
        ("{{1}}", "no words"),
        ("{{1}}, your answer is ready to be shown now.", "before the first"),
        ("Hello, this is the answer to your question: {{1}}", "after the last"),
        ("Hello, this is the answer to your question: {{1}}.", "a full stop is none"),
        ("Hello dear {{1}} {{2}}, the answer to your question is here now.", "between two"),
        ("Hello dear {{1}}, {{2}}, the answer to your question is here now.", "between two"),
        ("Hello dear {{1}}, the answer about {{3}} is here for you now.", "without leaving one out"),
        ("Hello dear {{2}}, the answer to your question is here now.", "without leaving one out"),
        ("Hello dear {{0}}, the answer to your question is here now.", "with nothing else between"),
        ("Hello dear {{name}}, the answer to your question is here now.", "with nothing else between"),
        ("Hello dear {{ 1 }}, the answer to your question is here now.", "with nothing else between"),
        ("Hello dear {{1}, the answer to your question is here now.", "with nothing else between"),
        ("Hi {{1}}, gate {{2}}. Thank you.", "at least 5 words"),
        ("x" * 1025, "1,025 characters, and may have 1,024"),
        ("👋" * 512 + "x", "1,025 characters"),
        ("Hello {{1}}, " + "x" * 820 + " that is all.", "may have 824 of its own"),
        ("Hello dear {{1}}, " + "it is {{2}} and " + "x" * 620 + " thank you very much for that.", "may have 624"),
    ],
)
def test_a_text_that_meta_would_refuse_is_refused_with_the_way_out(body: str, says: str) -> None:
    (problem,) = problems(draft(body))
    assert problem.startswith("body: ")
    assert says in problem


def test_the_limits_are_what_they_say() -> None:
    around = len("Hello , it is ready.")
    fits = "Hello {{1}}, " + "x" * (824 - around - 1) + " it is ready."
    assert list(problems(draft(fits))) == []
    assert list(problems(draft(fits.replace("ready", "ready."))))


def test_a_text_that_will_hold_a_whole_message_leaves_it_its_room() -> None:
    body = "Your reminder: {{1}} We are here for you. " + "x" * 200
    assert list(problems(draft(body))) == []
    (problem,) = problems(draft(body, places={"1": "text"}))
    assert "may have 224 of its own, since its places may take 800" in problem


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "Answer"}, "name: write small letters"),
        ({"name": "answer-ready"}, "name: write small letters"),
        ({"name": ""}, "name: write small letters"),
        ({"name": "listo_é"}, "name: write small letters"),
        ({"name": "ready\n"}, "name: write small letters"),
        ({"language": "pt"}, "pt_BR or pt_PT"),
        ({"language": "english"}, "as Meta does"),
        ({"language": "es-MX"}, "as Meta does"),
        ({"button": ""}, "button: write at least one"),
        ({"button": "Show me the whole answer"}, "at most 20"),
        ({"button": "Show {{1}}"}, "button: nothing can stand"),
        ({"places": {"1": "name"}}, "place: say of each place in the body"),
        ({"places": {"1": "name", "2": "about", "3": "time"}}, "place: say of each place in the body"),
    ],
)
def test_what_else_meta_would_refuse_is_named(wrong: dict[str, Any], says: str) -> None:
    (problem,) = problems(draft(**wrong))
    assert says in problem


def test_up_to_four_places_have_a_usual_meaning() -> None:
    assert usual_places("a {{1}} b") == {"1": "about"}
    assert usual_places("a {{2}} b {{1}} c") == {"1": "name", "2": "about"}
    assert usual_places("{{1}}{{2}}{{3}}{{4}}") == {"1": "name", "2": "about", "3": "business", "4": "time"}
    assert usual_places("{{1}}{{2}}{{3}}{{4}}{{5}}") == {}
    assert usual_places("nothing") == {}


@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_a_sample_could_stand_in_its_place(language: str) -> None:
    template = Template(sid=SID, language=language, variables={"1": "name", "2": "about", "3": "text"})
    assert fill(template, {str(word): said for word, said in SAMPLES[language].items()})


# What there is


async def test_the_list_tells_of_each_what_meta_says_page_by_page(twilio: TwilioServer, contents: Contents) -> None:
    for number in range(250):
        twilio.has_template(f"HX{number:032x}", f"Number {number} for {{{{1}}}} it is.", language="es")
    twilio.approvals[f"HX{249:032x}"] = "rejected"
    twilio.contents[f"HX{249:032x}"].rejection_reason = "INVALID_FORMAT"
    found = await contents.find_all()
    assert [content.sid for content in found] == list(twilio.contents)
    assert found[0] == Content(
        "HX" + "0" * 32, "template_0", "es", "approved", "UTILITY", "", "Number 0 for {{1}} it is."
    )
    assert (found[249].status, found[249].rejection) == ("rejected", "INVALID_FORMAT")
    assert [page.get("Page", "0") for page in twilio.pages] == ["0", "1", "2"]


async def test_an_account_without_templates_has_none(contents: Contents) -> None:
    assert await contents.find_all() == []
    assert await contents.find(SID) is None


async def test_one_is_found_by_its_number(twilio: TwilioServer, contents: Contents) -> None:
    twilio.has_template(SID, READY, status="paused")
    found = await contents.find(SID)
    assert found is not None
    assert (found.status, found.body, sorted(found.places)) == ("paused", READY, ["1", "2"])


# A new one


async def test_a_draft_becomes_a_template_with_a_button_and_samples_that_meta_is_asked_to_approve(
    twilio: TwilioServer, contents: Contents
) -> None:
    made = await contents.submit(draft(places={"1": "name", "2": "business"}), "Acme")
    (there,) = twilio.contents.values()
    action = {"type": "QUICK_REPLY", "title": "Show it", "id": "show"}
    assert there.types == {"twilio/quick-reply": {"body": READY, "actions": [action]}}
    assert there.variables == {"1": "Ana", "2": "Acme"}
    assert (there.friendly_name, there.name, there.language) == ("answer_ready", "answer_ready", "en")
    assert there.category == "UTILITY"
    assert made == Content(there.sid, "answer_ready", "en", "received", "UTILITY", "", READY)
    assert await contents.find(there.sid) == made


async def test_without_a_button_it_is_plain_text_in_the_language_asked_for(
    twilio: TwilioServer, contents: Contents
) -> None:
    body = "A resposta sobre {{1}} está pronta: escreva para recebê-la."
    await contents.submit(draft(body, language="pt_BR", button=None, category="MARKETING"), "Acme")
    (there,) = twilio.contents.values()
    assert there.types == {"twilio/text": {"body": body}}
    assert there.variables == {"1": "a renovação da sua apólice"}
    assert (there.language, there.category) == ("pt_BR", "MARKETING")


async def test_what_meta_does_not_even_look_at_is_not_left_behind(twilio: TwilioServer, contents: Contents) -> None:
    twilio.behave_with_templates(Accept(), Reject(400, 20001, "The name is taken"))
    with pytest.raises(NotDone, match="The name is taken") as caught:
        await contents.submit(draft(), "Acme")
    assert caught.value.is_certain
    assert twilio.contents == {}


@pytest.mark.parametrize("fault", [Drop(), Hang(), BAD_GATEWAY, Answer(200, "<html>")])
async def test_where_it_is_not_known_whether_it_was_submitted_its_number_is_told(
    twilio: TwilioServer, contents: Contents, fault: Any
) -> None:
    twilio.behave_with_templates(Accept(), fault)
    with pytest.raises(NotDone) as caught:
        await contents.submit(draft(), "Acme")
    (sid,) = twilio.contents
    assert f"vuelvo templates status {sid}" in str(caught.value)
    assert not caught.value.is_certain


# What goes wrong


@pytest.mark.parametrize(
    ("fault", "says", "is_certain"),
    [
        (Reject(401, 20003, "Authenticate"), "does not accept the account SID", True),
        (Reject(429, 20429, "Too Many Requests"), "too many requests", True),
        (Reject(400, 20001, "Bad"), "HTTP 400 (Twilio: error 20001, Bad)", True),
        (Answer(400, "[]", "application/json"), "HTTP 400", True),
        (BAD_GATEWAY, "HTTP 502", False),
        (Answer(200, "[]", "application/json"), "answer of Twilio is lost", False),
        (Answer(200, "nothing"), "answer of Twilio is lost", False),
        (Drop(), "answer of Twilio is lost", False),
        (Hang(), "did not answer within 1 seconds", False),
    ],
)
@pytest.mark.parametrize("what", ["find_all", "find", "submit"])
async def test_every_fault_is_one_line_without_a_secret(
    twilio: TwilioServer, contents: Contents, fault: Any, says: str, is_certain: bool, what: str
) -> None:
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "find_all": contents.find_all,
        "find": partial(contents.find, SID),
        "submit": partial(contents.submit, draft(), "Acme"),
    }
    twilio.behave_with_templates(fault)
    with pytest.raises(NotDone) as caught:
        await calls[what]()
    said = str(caught.value)
    assert says in said or (what == "find_all" and f"HTTP {caught.value.status}" in said)
    assert "\n" not in said
    assert twilio.auth_token not in said
    assert caught.value.is_certain == is_certain


async def test_a_twilio_that_cannot_be_reached_is_said_so(twilio: TwilioServer, contents: Contents) -> None:
    async with twilio.down():
        with pytest.raises(NotDone, match="cannot be reached") as caught:
            await contents.submit(draft(), "Acme")
    assert caught.value.is_certain


# Beside the file


def there_is(**told: Any) -> Content:
    usual = {"sid": SID, "name": "ready", "language": "en", "status": "approved", "category": "UTILITY"}
    return Content(**usual | {"rejection": "", "body": READY} | told)


NAMED = Template(sid=SID, language="en", variables={"1": "name", "2": "about"})


@pytest.mark.parametrize(
    ("content", "level", "says"),
    [
        (there_is(), "ok", ""),
        (there_is(language="en_GB"), "ok", ""),
        (None, "bad", "not in this account"),
        (there_is(language="es"), "bad", "in 'es', and the file says 'en'"),
        (there_is(body="Only {{1}} here."), "bad", "places 1, and the file fills 1, 2"),
        (there_is(body="None here."), "bad", "places none, and the file fills 1, 2"),
        (there_is(status="received"), "warning", "received at Meta: what needs it waits"),
        (there_is(status="pending"), "warning", "every 15 minutes"),
        (there_is(status="paused"), "warning", "paused at Meta"),
        (
            there_is(status="rejected", rejection="TAG_CONTENT_MISMATCH"),
            "bad",
            "rejected at Meta (TAG_CONTENT_MISMATCH)",
        ),
        (there_is(status="disabled"), "bad", "submit another"),
        (there_is(status="unsubmitted"), "bad", "unsubmitted at Meta"),
        (there_is(status="something new"), "warning", "something new at Meta"),
    ],
)
def test_a_template_that_is_named_is_judged_by_what_there_is(content: Content | None, level: str, says: str) -> None:
    found, words = judge(NAMED, content)
    assert found == level
    assert says in words


def test_a_language_without_a_template_is_told_with_what_happens_then() -> None:
    twilio = TwilioServer()
    none = section_for(twilio)
    assert list(gaps(none, ["es", "en"])) == [""]
    assert "refused when it is to be booked" in gaps(none, ["es"])[""]
    one = section_for(twilio, templates=[NAMED], hold_days=7)
    assert list(gaps(one, ["es", "en", "pt"])) == ["es", "pt"]
    assert gaps(one, ["es"])["es"] == (
        "no template in 'es': a follow-up in it for later than 24 hours after the customer's last message is refused when it"
        " is to be booked; one that is late all the same waits until the customer writes, for 7 days at most"
    )
    assert gaps(one, ["en"]) == {}
    only_notice = section_for(twilio, templates=[NAMED.model_copy(update={"purpose": "notice"})])
    assert list(gaps(only_notice, ["en"])) == [""]
