"""The model that answers when no real one is configured: rules that book, list and cancel, and say so.

It runs in the same loop and with the same tools as a real model. Each step is told by what the run has so far:
- only the customer's message: call a tool, ask for what is missing, or say what this is;
- a list, asked for by a cancellation: cancel what is meant, or ask which;
- results of the other tools: put them into words, refusals too, and end.
A follow-up's run begins with its frame and is put into words at once.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from agent.language import LANGUAGES, Language, day_in_words, detect
from agent.offline_reply import SENTENCES, say, say_when
from agent.offline_request import Request, complete, read, to_cancel
from agent.rhythm import end_in_words, in_words

FOLLOWUP_MARK, SAID_MARK = "[vuelvo:follow-up]", "[vuelvo:said "
SCHEDULE, RECUR, LIST, CANCEL = "schedule_followup", "schedule_recurring", "list_followups", "cancel_followup"

MOST_LINES = 20
"""Lines of one message that are read."""
MOST_QUESTIONS = 3
"""How many of its own questions the model looks back over to find what they were about."""

_NOW = re.compile(r"^Now: (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) \w+, time zone (\S+)$", re.MULTILINE)
_LANGUAGE = re.compile(r"^Language: .{0,40}?\b(en|es|pt)\b", re.MULTILINE)
_PRESENT = re.compile(r"\bnow (\d{4}-\d{2}-\d{2} \d{2}:\d{2})(?::\d{2})? in ([\w/+-]+)")
_FRAME_LINE = re.compile(r"^(About|Language|Kind): (.*)$", re.MULTILINE)
_WHOSE = re.compile(r"^\[vuelvo:matters\]\n(.+?) has written to this customer by itself", re.MULTILINE)
_MATTER = re.compile(
    r"^Matter \d+: due on (\d{4}-\d{2}-\d{2}); subject: (.+?)(?:; .*)?\. Still to be written", re.MULTILINE
)
_NO_CLOCK = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time, read only to see whether one is needed

Step = str | list[ToolCallPart]
"""What the model does next: say something, or call tools."""


def offline_model() -> FunctionModel:
    """Make the offline model, streamed or not."""
    return FunctionModel(_answer, stream_function=_stream, model_name="offline")


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    step = _next_step(messages, info)
    return ModelResponse(parts=[TextPart(step)] if isinstance(step, str) else list(step))


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    step = _next_step(messages, info)
    if isinstance(step, str):
        for word in re.findall(r"\S+\s*|\s+", step):
            yield word
    else:
        yield {
            number: DeltaToolCall(
                name=call.tool_name, json_args=call.args_as_json_str(), tool_call_id=call.tool_call_id
            )
            for number, call in enumerate(step)
        }


@dataclass(frozen=True, slots=True)
class _Run:
    """The conversation as far as it goes: what was said before, the customer's last words, what the tools answered to them."""

    before: Sequence[ModelMessage]
    prompt: str
    calls: Mapping[str, ToolCallPart]
    results: Sequence[ToolReturnPart]
    tools: frozenset[str]
    now: datetime | None
    zone: str
    language: Language
    business: str
    matters: Sequence[tuple[str, date]]
    """Of what the business has written by itself, and the day on which each is due."""

    def results_of(self, *tools: str) -> list[ToolReturnPart]:
        """Return what these tools answered."""
        return [result for result in self.results if result.tool_name in tools]


def _read_run(messages: Sequence[ModelMessage], info: AgentInfo) -> _Run:
    place = _place_of_prompt(messages)
    since = messages[place:]
    told = _NOW.search(info.instructions or "")
    language = _LANGUAGE.search(info.instructions or "")
    return _Run(
        before=messages[:place],
        prompt=_said_to_model(messages[place]) if messages else "",
        calls={
            part.tool_call_id: part for message in since for part in message.parts if isinstance(part, ToolCallPart)
        },
        results=[part for message in since for part in message.parts if isinstance(part, ToolReturnPart)],
        tools=frozenset(tool.name for tool in info.function_tools),
        now=_wall_time(told[1]) if told else None,
        zone=told[2] if told else "",
        language=_known(language[1]) if language else "en",
        business=whose[1] if (whose := _WHOSE.search(info.instructions or "")) else "",
        matters=[(found[2], date.fromisoformat(found[1])) for found in _MATTER.finditer(info.instructions or "")],
    )


def _place_of_prompt(messages: Sequence[ModelMessage]) -> int:
    """Where the customer's last words stand. A later request of the same run is the loop speaking, about a reply it refused."""
    spoken = [place for place, message in enumerate(messages) if _said_to_model(message)]
    run = messages[-1].run_id if messages else None
    return next((place for place in spoken if run is not None and messages[place].run_id == run), (spoken or [0])[-1])


def _next_step(messages: Sequence[ModelMessage], info: AgentInfo) -> Step:
    run = _read_run(messages, info)
    if run.prompt.startswith(FOLLOWUP_MARK) and SCHEDULE not in run.tools:
        return _say_what_is_due(run)
    if not {SCHEDULE, LIST, CANCEL} <= run.tools:
        return say("who I am", _known(detect(run.prompt, run.language)))
    requests = _requests(run)
    if run.results_of(CANCEL):
        return _say_what_was_cancelled(run, requests[0])
    if run.results_of(LIST):
        return _with_the_list(run, requests[0])
    if run.results_of(SCHEDULE, RECUR):
        return _say_what_was_booked(run, requests)
    return _first_step(run, requests)


def _requests(run: _Run) -> list[Request]:
    """What the message asks for: all its bookings, or else the first thing in it that is a request at all."""
    now = run.now or _NO_CLOCK
    lines = [line for line in run.prompt.splitlines() if line.strip() and not line.startswith(SAID_MARK)][:MOST_LINES]
    read_lines: list[Request] = []
    unfinished = _unfinished(run, now)
    for line in lines:
        request = read(line, run.language, now)
        if request.kind == "other" and unfinished is not None:
            request = complete(unfinished, line, now) or request
            if request.kind != "other" and read_lines and read_lines[-1] is unfinished:
                read_lines.pop()
        unfinished = request if request.kind in ("no time", "no hour") else None
        read_lines.append(request)
    for kinds in (("booking", "repeating", "list", "cancel"), ("no time", "no hour"), ("hello",)):
        wanted = [request for request in read_lines if request.kind in kinds]
        if wanted and wanted[0].kind == "booking":
            return [request for request in wanted if request.kind == "booking"]
        if wanted:
            return wanted[:1]
    return read_lines[:1] or [Request("other", run.language)]


def _unfinished(run: _Run, now: datetime) -> Request | None:
    """The request before this message, when the model answered it by asking for a time."""
    words: list[str] = []
    spoken = [message for message in run.before if _said_to_model(message) or _said_by_model(message)]
    for answer, asked in zip(spoken[-1::-2], spoken[-2::-2], strict=False):
        if len(words) == MOST_QUESTIONS or not _said_by_model(answer).startswith(_ASKS):
            break
        words.append(_said_to_model(asked))
    if not words:
        return None
    request = read(" ".join(words.pop().split()), run.language, now)
    while words:
        line = " ".join(words.pop().split())
        begun = read(line, run.language, now)
        completed = complete(request, line, now)
        request = completed or (begun if begun.kind in ("no time", "no hour") else request)
    return request if request.kind in ("no time", "no hour", "booking") else None


_ASKS = tuple(
    sentence.partition("{")[0]
    for name in ("which time", "which hour", "past", "refused", "no clock")
    for sentence in SENTENCES[name].values()
)


def _first_step(run: _Run, requests: Sequence[Request]) -> Step:
    request = requests[0]
    match request.kind:
        case "booking" if RECUR not in run.tools and any(wanted.recurring for wanted in requests):
            return say("repeating", request.language)
        case "booking" if run.now is None and any(wanted.at for wanted in requests):
            return say("no clock", request.language)
        case "booking":
            return [_booking_call(wanted) for wanted in requests]
        case "list" | "cancel":
            return [ToolCallPart(LIST, {})]
        case "no time":
            return say("which time", request.language)
        case "no hour":
            return say("which hour", request.language)
        case "repeating":
            return say("repeating", request.language)
        case "hello":
            return say("hello", request.language) + say("who I am", request.language)
        case _:
            return _say_notices(run, request.language) or say("who I am", request.language)


def _say_notices(run: _Run, language: Language) -> str:
    """Say whose the business's own notices are; nothing where there are none."""
    return "\n".join(
        say("notice", language, business=run.business, about=about, day=day_in_words(due, language))
        for about, due in run.matters
    )


def _booking_call(request: Request) -> ToolCallPart:
    when = (request.recurring and asdict(request.recurring)) or {"delay": request.delay, "at": request.at}
    args = {"about": request.about or say("no subject", request.language), **when}
    tool = RECUR if request.recurring else SCHEDULE
    return ToolCallPart(tool, {name: value for name, value in args.items() if value is not None})


def _say_what_was_booked(run: _Run, requests: Sequence[Request]) -> str:
    lines = [_say_booking(run, result, requests[0].language) for result in run.results_of(SCHEDULE, RECUR)]
    return "\n".join(dict.fromkeys(lines))


def _say_booking(run: _Run, result: ToolReturnPart, language: Language) -> str:
    call = run.calls.get(result.tool_call_id)
    args = call.args_as_dict() if call else {}
    booked = result.content
    if result.outcome != "success" or not isinstance(booked, Mapping) or not booked.get("booked"):
        return _say_refusal(run, str(booked), language)
    if result.tool_name == RECUR:
        return _say_recurring(run, booked, language)
    if not args.get("delay") and not args.get("at"):
        return say("work", language)
    when = _say_local_time(run, booked, language, with_seconds="delay" in args)
    about = str(booked.get("about", args.get("about", "")))
    if about == say("no subject", language):
        return say("booked without a subject", language, when=when)
    return say("booked", language, when=when, about=about)


def _say_recurring(run: _Run, booked: Mapping[str, Any], language: Language) -> str:
    first = next(iter(booked.get("local_times") or ()), "")
    when = say_when(str(first), str(booked.get("time_zone", run.zone)), language, run.now, with_seconds=False)
    often = _say_rhythm(booked, booked.get("times"), language)
    about = str(booked.get("about", ""))
    if about == say("no subject", language):
        return say("booked again without a subject", language, often=often, when=when)
    return say("booked again", language, often=often, about=about, when=when)


def _say_rhythm(told: Mapping[str, Any], times: object, language: Language) -> str:
    end = end_in_words({"until": told.get("until"), "times_left": times}, language)
    return ", ".join(filter(None, (in_words(str(told.get("how_often", "")), language), end)))


def _say_refusal(run: _Run, reason: str, language: Language) -> str:
    if re.search(r"\bpast\b", reason) is None:
        return say("refused", language)
    present = _PRESENT.search(reason)
    at, zone = (_wall_time(present[1]), present[2]) if present else (run.now, run.zone)
    return say("past", language, now=f"{at:%H:%M} ({zone})") if at else say("refused", language)


def _with_the_list(run: _Run, request: Request) -> Step:
    language = request.language
    pending = [item for result in run.results_of(LIST) for item in _items(result.content)]
    if not pending:
        return _say_notices(run, language) or say("nothing pending", language)
    listed = "\n".join([say("pending", language), *(_say_item(run, item, language) for item in pending)])
    if request.kind != "cancel":
        return "\n".join(filter(None, [listed, _say_notices(run, language)]))
    meant, is_certain = to_cancel(request.words, pending)
    if not meant:
        return f"{say('no match', language)}\n{listed}"
    if not is_certain:
        return f"{say('which one', language, id=meant[0])}\n{listed}"
    return [ToolCallPart(CANCEL, {"id": id_}) for id_ in meant]


def _items(content: object) -> list[Mapping[str, Any]]:
    if not isinstance(content, Sequence) or isinstance(content, str):
        return []
    return [item for item in content if isinstance(item, Mapping) and isinstance(item.get("id"), int)]


def _say_item(run: _Run, item: Mapping[str, Any], language: Language) -> str:
    when = _say_local_time(run, item, language, with_seconds=False)
    repeats = f" ({_say_rhythm(item, item.get('times_left'), language)})" if item.get("recurring") else ""
    return f'{item["id"]}. "{item.get("about", "")}", {when}{repeats}'


def _say_what_was_cancelled(run: _Run, request: Request) -> str:
    lines = []
    for result in run.results_of(CANCEL):
        done = result.content
        if (
            result.outcome != "success"
            or not isinstance(done, Mapping)
            or not (done.get("cancelled") or done.get("raced"))
        ):
            lines.append(say("not cancelled", request.language))
        else:
            sentence = "cancelled" if done.get("cancelled") else "raced"
            lines.append(say(sentence, request.language, about=done.get("about", "")))
    return "\n".join(dict.fromkeys(lines))


def _say_what_is_due(run: _Run) -> str:
    frame = {name: value.strip() for name, value in reversed(_FRAME_LINE.findall(run.prompt))}
    language, about = _known(frame.get("Language", run.language)), frame.get("About", "")
    if frame.get("Kind") == "work":
        return say("work due", language, about=about)
    return say("reminder", language, about=about) + ("" if about.endswith((".", "!", "?", "…")) else ".")


def _say_local_time(run: _Run, booked: Mapping[str, Any], language: Language, *, with_seconds: bool) -> str:
    local, zone = str(booked.get("local_time", "")), str(booked.get("time_zone", run.zone))
    return say_when(local, zone, language, run.now, with_seconds=with_seconds)


def _said_to_model(message: ModelMessage) -> str:
    """The last thing that is said to the model in a message, if anything is."""
    if isinstance(message, ModelRequest):
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart):
                said = [part.content] if isinstance(part.content, str) else part.content
                words = "\n".join(
                    each if isinstance(each, str) else each.content
                    for each in said
                    if isinstance(each, str | TextContent)
                )
                if words.strip():
                    return words
    return ""


def _said_by_model(message: ModelMessage) -> str:
    if not isinstance(message, ModelResponse):
        return ""
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))


def _wall_time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        return None


def _known(language: str) -> Language:
    return next((known for known in LANGUAGES if known == language), "en")
