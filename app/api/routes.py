"""Everything below `/v1`, and its description."""

from starlette.routing import Route

from app.api.access import Answer, endpoint
from app.api.description import Description
from app.api.followups import book_followup
from app.api.functions import call_or_book
from app.api.tasks import cancel_tasks, get_task, list_tasks, reschedule_task
from app.runs import Functions

ENDPOINTS: tuple[tuple[str, str, str, Answer], ...] = (
    ("POST", "/v1/functions/{path:path}", "book", call_or_book),
    ("POST", "/v1/followups", "book", book_followup),
    ("GET", "/v1/tasks", "read", list_tasks),
    ("POST", "/v1/tasks/cancel", "cancel", cancel_tasks),
    ("GET", "/v1/tasks/{id}", "read", get_task),
    ("POST", "/v1/tasks/{id}/reschedule", "book", reschedule_task),
)
"""Method, address, what a key must allow, and what answers."""


def api_routes(functions: Functions) -> list[Route]:
    """Return the routes of a tenant's server."""
    return [
        *(
            Route(address, endpoint(functions, scope, answer), methods=[method])
            for method, address, scope, answer in ENDPOINTS
        ),
        Route("/openapi.json", Description(functions, ENDPOINTS).answer),
    ]
