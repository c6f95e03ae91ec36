"""What there is of an answer while it is being written, for whoever shows it in another process than the one that writes it.

A draft is no message: it may be taken back, and is worth nothing once its answer is there. So it is not logged, and a server
that crashes may forget it.
"""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKeyConstraint, Integer, SmallInteger, Table, Text
from sqlalchemy.ext.asyncio import AsyncConnection

from store.database import bucket_of, metadata, sql

drafts = Table(
    "drafts",
    metadata,
    Column("bucket", SmallInteger, primary_key=True, autoincrement=False),
    Column("tenant", Text, primary_key=True),
    Column("conversation", BigInteger, primary_key=True, autoincrement=False),
    # The customer's message it answers: once that is answered, the draft is old.
    Column("answers", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    ForeignKeyConstraint(
        ["bucket", "tenant", "conversation"],
        ["conversations.bucket", "conversations.tenant", "conversations.id"],
        ondelete="CASCADE",
    ),
    prefixes=["UNLOGGED"],
)

PUT = """
insert into drafts (bucket, tenant, conversation, answers, text, at)
values (:bucket, :tenant, :conversation, :answers, :words, now())
on conflict (bucket, tenant, conversation) do update
   set answers = excluded.answers, text = excluded.text, at = excluded.at
"""


async def put(connection: AsyncConnection, tenant: str, conversation: int, answers: int, words: str) -> None:
    """Keep the whole of what may be seen so far of the answer to the customer's message `answers`, in place of what was."""
    given = {"bucket": bucket_of(tenant), "tenant": tenant, "conversation": conversation}
    await connection.execute(sql(PUT), given | {"answers": answers, "words": words})
