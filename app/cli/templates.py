"""`vuelvo templates list | submit | status`."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, get_args

import click

from app.cli.run import fail, run, show
from app.settings import Settings
from app.tenants_file import TenantConfig
from app.wiring import running
from channels.errors import NotDone
from channels.whatsapp.contents import Category, Content, Contents, Draft, gaps, judge, problems, usual_places
from channels.whatsapp.section import WhatsAppSection, Word


@click.group()
def templates() -> None:
    """List a tenant's WhatsApp templates, submit one, ask for one's approval."""


class _Account(NamedTuple):
    tenant: TenantConfig
    section: WhatsAppSection
    contents: Contents


@asynccontextmanager
async def _account(settings: Settings, name: str) -> AsyncIterator[_Account]:
    """Find a tenant's account at Twilio; what is not done there ends the command with one line."""
    async with running(settings, poll=False, is_patient=False) as house:
        tenant = await house.service.tenant(name)
    section = tenant.channels.whatsapp if tenant else None
    if tenant is None or section is None:
        fail(f"there is no tenant {name!r} with a WhatsApp channel: see vuelvo tenants list", 2)
    try:
        async with Contents(section, settings.twilio_api_url) as contents:
            yield _Account(tenant, section, contents)
    except NotDone as problem:
        fail(str(problem))


async def _list(settings: Settings, tenant: str, as_json: bool) -> None:
    async with _account(settings, tenant) as account:
        there = await account.contents.find_all()
    show(
        _beside(account, there),
        as_json=as_json,
        columns=["sid", "name", "language", "status", "category", "in_file", "note", "body"],
    )


def _beside(account: _Account, there: Sequence[Content]) -> list[dict[str, Any]]:
    """Return what the tenant's file names beside what Twilio has, in the file's order, then what it lacks."""
    by_sid = {content.sid: content for content in there}
    spoken = {template.language for template in account.section.templates}
    named = {template.sid: template for template in account.section.templates}
    named |= {sid: template for sid, template in account.tenant.step_templates.items() if sid not in named}
    rows = [
        _row(by_sid.get(sid), sid=sid, language=template.language, note=judge(template, by_sid.get(sid))[1])
        for sid, template in named.items()
    ]
    for content in there:
        if content.sid not in named:
            lacks = content.language[:2] not in spoken
            note = f"the file names none in {content.language[:2]!r}" if lacks else ""
            rows.append(_row(content, in_file=False, note=note))
    return rows + [
        _row(None, sid=None, language=language or None, in_file=False, note=words)
        for language, words in gaps(account.section, account.tenant.languages).items()
    ]


def _row(content: Content | None, *, in_file: bool = True, **more: Any) -> dict[str, Any]:
    fields = ("sid", "name", "language", "status", "category", "rejection", "body")
    told = {field: getattr(content, field) if content else None for field in fields}
    return {**more, **{field: value for field, value in told.items() if value is not None}, "in_file": in_file} | (
        {} if content else {"status": "none"}
    )


_tenant = click.option("--tenant", required=True, help="Whose.")
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@templates.command(name="list")
@_tenant
@_json
def list_templates(tenant: str, as_json: bool) -> None:
    """List the templates that a tenant's file names beside those that Twilio has."""
    run(_list)(tenant=tenant, as_json=as_json)


async def _status(settings: Settings, sid: str, tenant: str, as_json: bool) -> None:
    if not re.fullmatch("HX[0-9a-fA-F]{32}", sid):
        fail(f"{sid!r} is not the number of a template: HX and 32 letters and digits", 2)
    async with _account(settings, tenant) as account:
        content = await account.contents.find(sid)
    if content is None:
        fail(f"there is no template {sid} in this account: see vuelvo templates list", 2)
    told = {name: value for name, value in _row(content).items() if value and name != "in_file"}
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        for name, value in told.items():
            click.echo(f"{name}: {value}")


@templates.command()
@click.argument("sid")
@_tenant
@_json
def status(sid: str, tenant: str, as_json: bool) -> None:
    """Say what Meta says of one template."""
    run(_status)(sid=sid, tenant=tenant, as_json=as_json)


def _places(body: str, given: Sequence[str]) -> dict[str, Word]:
    """Return what stands in each place of a text: what was said, and else what is usual."""
    places = usual_places(body)
    words = {word: word for word in get_args(Word)}
    for one in given:
        number, _, word = one.partition("=")
        if not re.fullmatch("[1-9][0-9]?", number) or word not in words:
            raise click.BadParameter(f"{one!r}: write 1=name, with one of {', '.join(words)}", param_hint="'--place'")
        places[number] = words[word]
    return places


async def _submit(settings: Settings, tenant: str, draft: Draft, as_json: bool) -> None:
    wrong = [f"--{problem}" for problem in problems(draft)]
    if wrong:
        fail("\n".join([*wrong, "Nothing was submitted."]), 2)
    language = draft.language[:2]
    async with _account(settings, tenant) as account:
        if language not in account.tenant.languages:
            spoken = ", ".join(account.tenant.languages)
            fail(
                f"--language: {tenant} speaks {spoken}, not {language}, and nothing would be sent by this template: add it to"
                " languages in the tenant's file first. Nothing was submitted.",
                2,
            )
        for one in await account.contents.find_all():
            if (one.name, one.language) == (draft.name, draft.language) and one.status != "unsubmitted":
                fail(
                    f"--name: there is {one.sid} of this name in {one.language} already, {one.status} at Meta:"
                    " nothing was submitted: choose another --name",
                    2,
                )
        made = await account.contents.submit(draft, account.tenant.name)
    template = {"sid": made.sid, "language": language, "variables": dict(draft.places)}
    if as_json:
        click.echo(json.dumps({**_row(made, in_file=False), "template": template}, ensure_ascii=False, indent=2))
        return
    click.echo(f"{made.sid} is submitted as {made.name} in {made.language}: {made.status} at Meta.")
    click.echo("Put it under channels.whatsapp of the tenant's file, beside what is there, and apply the file:\n")
    click.echo(_lines(template))
    click.echo(f"vuelvo templates status {made.sid} --tenant {tenant} says when it is approved.")


def _lines(template: Mapping[str, Any]) -> str:
    """Return a template as it is written into a tenant's file."""
    filled = ", ".join(f'"{number}": {word}' for number, word in template["variables"].items())
    variables = f"        variables: {{{filled}}}\n" if filled else ""
    return f"    templates:\n      - sid: {template['sid']}\n        language: {template['language']}\n{variables}"


@templates.command()
@_tenant
@click.option("--name", required=True, help="Small letters, digits and _, as in answer_ready.")
@click.option("--language", required=True, help="As Meta writes it: en, es, es_MX, pt_BR.")
@click.option("--body", required=True, help="The text, with {{1}}, {{2}} where something is to stand.")
@click.option("--button", help="What stands on a button that brings the message.")
@click.option("--place", "places", multiple=True, help="What stands in a place, as in 1=name; may be repeated.")
@click.option(
    "--category", type=click.Choice(get_args(Category), case_sensitive=False), default="UTILITY", show_default=True
)
@_json
def submit(
    tenant: str,
    name: str,
    language: str,
    body: str,
    button: str | None,
    places: tuple[str, ...],
    category: Category,
    as_json: bool,
) -> None:
    """Make a template at Twilio and ask Meta to approve it; prints the lines for the tenant's file."""
    draft = Draft(name, language, body, button, category, _places(body, places))
    run(_submit)(tenant=tenant, draft=draft, as_json=as_json)
