"""Everything below `/v1`, and its description."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.api.access import Answer, endpoint
from app.api.description import Description
from app.api.followups import book_followup
from app.api.functions import call_or_book
from app.api.renewals import close_renewal, get_renewal, put_renewal
from app.api.tasks import cancel_tasks, get_task, list_tasks, reschedule_task
from app.runs import Functions

ENDPOINTS: tuple[tuple[str, str, str, Answer], ...] = (
    ("POST", "/v1/functions/{path:path}", "book", call_or_book),
    ("POST", "/v1/followups", "book", book_followup),
    ("GET", "/v1/tasks", "read", list_tasks),
    ("POST", "/v1/tasks/cancel", "cancel", cancel_tasks),
    ("GET", "/v1/tasks/{id}", "read", get_task),
    ("POST", "/v1/tasks/{id}/reschedule", "book", reschedule_task),
    ("POST", "/v1/renewals/{subject:path}/close", "book", close_renewal),
    ("PUT", "/v1/renewals/{subject:path}", "book", put_renewal),
    ("GET", "/v1/renewals/{subject:path}", "read", get_renewal),
)
"""Method, address, what a key must allow, and what answers."""

Endpoint = Callable[[Request], Awaitable[Response]]


def api_routes(functions: Functions) -> list[Route]:
    """Return the routes of a tenant's server."""
    by_address: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for method, address, scope, answer in ENDPOINTS:
        by_address[address][method] = endpoint(functions, scope, answer)
    return [
        *(Route(address, _by_method(each), methods=list(each)) for address, each in by_address.items()),
        Route("/openapi.json", Description(functions, ENDPOINTS).answer),
    ]


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return answer
