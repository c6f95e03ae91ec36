"""What goes wrong below, in the words in which whoever called is told of it: the same over HTTP and over MCP."""

import logging

from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.tenants_file import UNUSABLE
from channels.request import Problem

log = logging.getLogger(__name__)

DATABASE_DOWN = (DBAPIError, PoolTimeout, OSError)
"""What is raised while the database does not answer."""


def problem_of(raised: Exception) -> Problem:
    """Return what is answered to an error that nobody has put into words; none of its own words are among it."""
    if isinstance(raised, UNUSABLE):
        words = "This tenant cannot be served just now, and its operator has been told. Try again later."
        return Problem(503, words, headers={"retry-after": "60"})
    if isinstance(raised, DataError):
        return Problem(400, "Something in the request is nothing that can be stored, such as a zero byte.")
    if isinstance(raised, DATABASE_DOWN):
        log.warning("a request was refused, the database does not answer: %s", type(raised).__name__)
        words = "The database does not answer just now. Send the same again shortly: a message that has arrived is not taken twice."
        return Problem(503, words, headers={"retry-after": "2"})
    return Problem(500, "Something went wrong here; it has been logged. Trying again later may help.")
