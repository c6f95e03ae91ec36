"""Exporting what a tenant knows, or what it knows of one contact: JSON lines, each with its `kind`, as of one moment.

Rows are read by a cursor and handed on one by one, so that a large tenant takes no more memory than a small one.
"""

from collections.abc import AsyncGenerator, Sequence

from store.database import Database, bucket_of, sql

MOMENT = "set transaction isolation level repeatable read, read only"
_OF = "t.bucket = :bucket and t.tenant = :tenant"


def _lines(kind: str, table: str, columns: str, whose: str, order: str) -> str:
    # What kind of message or of task it is has another name than the line's own kind.
    named = ", ".join(f"'{f'{kind}_kind' if column == 'kind' else column}', t.{column}" for column in columns.split())
    return (
        f"select cast(json_build_object('kind', '{kind}', {named}) as text) from {table} t"
        f" where {_OF} and (not :is_some or {whose}) order by {order}"
    )


_IN_TALKS = "t.conversation = any(cast(:conversations as bigint[]))"
LINES = (
    _lines(
        "contact",
        "contacts",
        "id channel address name language time_zone stopped created_at",
        "t.id = any(cast(:contacts as bigint[]))",
        "t.id",
    ),
    _lines(
        "conversation",
        "conversations",
        "id contact thread last_seq answered_seq seen_seq last_inbound_at created_at with_person_since with_person_why",
        "t.id = any(cast(:conversations as bigint[]))",
        "t.id",
    ),
    _lines(
        "message", "messages", "conversation seq role kind text at asked_at task", _IN_TALKS, "t.conversation, t.seq"
    ),
    _lines(
        "task",
        "tasks",
        "id kind state hold conversation channel parent payload text booked_for due_at expires_at attempt outcome error"
        " message_seq key subject created_at ended_at",
        _IN_TALKS,
        "t.id",
    ),
    _lines(
        "renewal",
        "renewals",
        "id subject due cadence addresses name language time_zone fields agreed state stopped said conversation created_at"
        " closed_at",
        "t.id = any(cast(:renewals as bigint[]))",
        "t.id",
    ),
)


async def export(
    database: Database,
    tenant: str,
    *,
    contacts: Sequence[int] | None = None,
    conversations: Sequence[int] = (),
    renewals: Sequence[int] = (),
) -> AsyncGenerator[str, None]:
    """Yield a tenant's contacts, conversations, messages, tasks and renewals, a line of JSON each.

    With `contacts` only theirs: what is in their `conversations`, and their `renewals`.
    """
    given = {
        "bucket": bucket_of(tenant),
        "tenant": tenant,
        "is_some": contacts is not None,
        "contacts": list(contacts or ()),
        "conversations": list(conversations),
        "renewals": list(renewals),
    }
    async with database.transaction() as connection:
        await connection.execute(sql(MOMENT))
        for statement in LINES:
            rows = await connection.stream(sql(statement), given)
            async for (line,) in rows:
                yield line
