"""The HTTP side as one application: the widget, the webhooks, and whether all is well."""

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.rhythm import zone_for
from app.api.routes import api_routes
from app.hooks import hook_routes
from app.inbox import receive
from app.mcp.http import mcp_routes
from app.problems import DATABASE_DOWN, problem_of
from app.service import OLDEST_DUE_LIMIT, Service
from app.signed_in import bring_along
from app.tenants_file import UNUSABLE
from app.wiring import Running
from channels.request import Problem
from scheduler.cancel import cancel_followup
from scheduler.find import count_troubled, each_once, oldest_due, pending_followups
from scheduler.poller import DUE
from scheduler.task import TROUBLED
from scheduler.when import known_zone
from store import conversations
from web_widget.listeners import Listeners
from web_widget.page import demo_page
from web_widget.routes import routes as widget_routes
from web_widget.web import Pending, Web, WebTenant

log = logging.getLogger(__name__)


def application(running: Running) -> Starlette:
    """Return the ASGI application of a running service."""
    service, web = running.service, web_of(running)
    return Starlette(
        routes=[
            Route("/", demo_page(web, "demo")),
            *_health_routes(running),
            *hook_routes(service, running.settings),
            *widget_routes(web),
            *api_routes(running.functions),
            *mcp_routes(running.functions, running.settings),
        ],
        exception_handlers=_HANDLERS,
    )


def web_of(running: Running) -> Web:
    """Return what the widget needs of a running service."""
    service = running.service
    return Web(
        database=service.database,
        signals=service.signals,
        find_tenant=partial(_find_web_tenant, service),
        receive=partial(receive, service),
        pending=partial(_pending, service),
        cancel=partial(_cancel, service),
        stopping=running.stopping,
        merge=partial(bring_along, service.clock),
        on_merged=lambda conversation: service.signals.hint(DUE),
        secret=service.box.derive("web addresses").encode(),
        listeners=Listeners(service.database, service.signals, running.stopping),
    )


def health(running: Running) -> Starlette:
    """Return the ASGI application of a process that only works: whether all is well, and its numbers."""
    return Starlette(routes=_health_routes(running), exception_handlers=_HANDLERS)


def _health_routes(running: Running) -> list[Route]:
    return [
        Route("/healthz", lambda _: JSONResponse({"status": "alive"})),
        Route("/readyz", partial(_ready, running)),
        Route("/metrics", partial(_metrics, running)),
    ]


def _on_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


def _on_http(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    details = {404: "There is nothing at this address.", 405: "This address does not take this method."}
    return Problem(
        problem.status_code, details.get(problem.status_code, problem.detail), headers=dict(problem.headers or {})
    ).response()


def _on_raised(_: Request, raised: Exception) -> Response:
    return problem_of(raised).response()


_HANDLERS: Mapping[Any, Any] = {
    Problem: _on_problem,
    HTTPException: _on_http,
    **dict.fromkeys((*UNUSABLE, DataError, *DATABASE_DOWN, Exception), _on_raised),
}


async def _ready(running: Running, _: Request) -> Response:
    """Fit to serve: the database answers, this process's poller looks, and nothing has been due for long.

    A tenant that cannot be used is told of, but leaves the service fit to serve all others.
    """
    service = running.service
    problems = []
    age = None
    try:
        async with service.database.autocommit() as connection:
            await connection.execute(text("select 1"))
            age = await oldest_due(connection, service.clock.override())
    except (DBAPIError, OSError, PoolTimeout):
        problems.append("the database does not answer")
    beat = running.poller.beat_at if running.poller else None
    limit = 2 * running.settings.poll_interval.total_seconds()
    if running.poller and (beat is None or time.monotonic() - beat > limit):
        problems.append(f"the poller has not looked for more than {limit:g} seconds")
    if age is not None and age > OLDEST_DUE_LIMIT:
        problems.append(f"a task has been due for {age:.0f} seconds")
    return JSONResponse(
        {
            "status": "ready" if not problems else "not ready",
            "problems": problems + [f"tenant {name} cannot be used: see the log" for name in sorted(service.unusable)],
            "oldest_due_seconds": age,
            "hears_other_processes": service.signals.is_alive,
        },
        status_code=503 if problems else 200,
    )


async def _metrics(running: Running, _: Request) -> Response:
    service = running.service
    lines = [generate_latest(service.counts.registry).decode()]
    async with service.database.autocommit() as connection:
        age = await oldest_due(connection, service.clock.override())
        rows = await connection.execute(
            text(
                "select kind, state, count(*) from tasks where state in ('scheduled', 'firing') group by 1, 2 order by 1, 2"
            )
        )
        lines += ["# TYPE vuelvo_oldest_due_seconds gauge", f"vuelvo_oldest_due_seconds {age}"]
        lines.append("# TYPE vuelvo_tasks_active gauge")
        lines += [f'vuelvo_tasks_active{{kind="{kind}",state="{state}"}} {count}' for kind, state, count in rows]
        troubled = await count_troubled(connection)
        lines.append("# TYPE vuelvo_tasks_troubled gauge")
        lines += [f'vuelvo_tasks_troubled{{state="{state}"}} {troubled.get(state, 0)}' for state in TROUBLED]
        lines.append("# TYPE vuelvo_conversations_with_a_person gauge")
        waiting = await conversations.count_with_person(connection)
        lines += [f'vuelvo_conversations_with_a_person{{tenant="{tenant}"}} {count}' for tenant, count in waiting]
    if running.poller and running.poller.beat_at is not None:
        lines.append("# TYPE vuelvo_poller_heartbeat_age_seconds gauge")
        lines.append(f"vuelvo_poller_heartbeat_age_seconds {time.monotonic() - running.poller.beat_at}")
    return Response("\n".join(lines) + "\n", media_type=CONTENT_TYPE_LATEST)


async def _find_web_tenant(service: Service, name: str) -> WebTenant | None:
    tenant = await service.tenant(name)
    if tenant is None or tenant.channels.web is None:
        return None
    return WebTenant(
        name=tenant.tenant,
        title=tenant.channels.web.title or tenant.name,
        section=tenant.channels.web,
        languages=tenant.languages,
        time_zone=tenant.time_zone,
    )


async def _pending(service: Service, tenant: str, conversation: int) -> Sequence[Pending]:
    config = await service.tenant(tenant)
    async with service.database.autocommit() as connection:
        held_with = await conversations.find(connection, tenant, conversation)
        found = each_once(await pending_followups(connection, tenant, conversation))
    zone = known_zone(held_with.time_zone if held_with else None) or ZoneInfo(config.time_zone if config else "UTC")
    return [
        Pending(task.id, str(task.payload.get("about", "")), task.booked_for, zone_for(task, zone).key)
        for task in found
    ]


async def _cancel(service: Service, tenant: str, conversation: int, task: int) -> str | None:
    async with service.database.transaction() as connection:
        done = await cancel_followup(connection, service.clock, tenant, conversation, task, by="the customer")
    return "cancelled" if task in done.cancelled else "raced" if task in done.raced else None
