"""`vuelvo keys create | list | revoke`."""

import json
from dataclasses import asdict
from datetime import UTC, datetime

import click
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cli.run import as_text, fail, opened, run, show
from app.settings import Settings
from store import api_keys, tenants
from store.api_keys import SCOPES

LONGEST_NAME = 200


def _scopes(_: click.Context, __: click.Parameter, words: str) -> list[str]:
    given = [word.strip() for word in words.split(",") if word.strip()]
    unknown = [word for word in given if word not in SCOPES]
    if unknown or not given:
        told = f"there is no scope {unknown[0][:40]!r}" if unknown else "a key without a scope opens nothing"
        raise click.BadParameter(f"{told}: give some of {','.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in given]


def _name(context: click.Context, option: click.Parameter, words: str) -> str:
    name = " ".join((as_text(context, option, words) or "").split())
    if len(name) > LONGEST_NAME:
        raise click.BadParameter(f"it has {len(name)} characters, and {LONGEST_NAME} may be kept: shorten it")
    return name


_of_tenant = click.option("--tenant", required=True, callback=as_text, help="Whose key.")
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def keys() -> None:
    """Make, list and revoke the keys with which a tenant's server calls the API."""


async def _check_tenant(connection: AsyncConnection, tenant: str) -> None:
    if await tenants.find(connection, tenant) is None:
        fail(f"there is no tenant {tenant!r}: see vuelvo tenants list", 2)


def _shown(at: datetime | None) -> str | None:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if at else None


async def _create(settings: Settings, tenant: str, scopes: list[str], name: str, as_json: bool) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        await _check_tenant(connection, tenant)
        number, key = await api_keys.create(connection, tenant, name=name, scopes=scopes)
    if as_json:
        click.echo(json.dumps({"id": number, "tenant": tenant, "name": name, "scopes": scopes, "key": key}))
        return
    click.echo(key)
    click.echo(
        f"This is the key {number} of tenant {tenant}, to {', '.join(scopes)}. It is shown this once: keep it where your"
        f" server finds it. vuelvo keys revoke {number} --tenant {tenant} takes it back.",
        err=True,
    )


@keys.command()
@_of_tenant
@click.option(
    "--scopes",
    default=",".join(SCOPES),
    show_default=True,
    callback=_scopes,
    help="What it may do: book (and call), read, cancel.",
)
@click.option("--name", default="", callback=_name, help="What it is for, to know it by in the list.")
@_as_json
def create(tenant: str, scopes: list[str], name: str, as_json: bool) -> None:
    """Make a key, and print it, alone on a line of standard output. Nobody can be shown it again."""
    run(_create)(tenant=tenant, scopes=scopes, name=name, as_json=as_json)


async def _list(settings: Settings, tenant: str | None, as_json: bool) -> None:
    async with opened(settings) as database, database.autocommit() as connection:
        if tenant is not None:
            await _check_tenant(connection, tenant)
        found = await api_keys.all_of(connection, tenant)
    rows = [
        asdict(key)
        | {
            "scopes": list(key.scopes) if as_json else ",".join(key.scopes),
            "created_at": _shown(key.created_at),
            "revoked_at": _shown(key.revoked_at),
        }
        for key in found
    ]
    show(rows, as_json=as_json, columns=["id", "tenant", "name", "scopes", "created_at", "revoked_at"])


@keys.command("list")
@click.option("--tenant", callback=as_text, help="Only this tenant's.")
@_as_json
def list_keys(tenant: str | None, as_json: bool) -> None:
    """List the keys there are, those that were revoked too, the oldest first; never the keys themselves."""
    run(_list)(tenant=tenant, as_json=as_json)


async def _revoke(settings: Settings, number: str, tenant: str) -> None:
    async with opened(settings) as database, database.transaction() as connection:
        await _check_tenant(connection, tenant)
        is_revoked = await api_keys.revoke(connection, tenant, number)
    if not is_revoked:
        fail(
            f"tenant {tenant} has no key {number[:40]!r} that opens anything: vuelvo keys list --tenant {tenant} shows which"
            " there are, by their ids",
            2,
        )
    click.echo(f"{number} opens nothing any more")


@keys.command()
@click.argument("number", metavar="ID", callback=as_text)
@_of_tenant
def revoke(number: str, tenant: str) -> None:
    """Let the key of this ID open nothing any more, from now on."""
    run(_revoke)(number=number, tenant=tenant)
