"""Databases for tests, each as the migrated template is: emptied after a test rather than made for it, which takes a tenth of the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg

from store.throwaway import address_of

SCHEMA = """
select md5(string_agg(what, ',' order by what)) from (
    select format('class %s %s %s', oid, relname, reloptions) from pg_class where relnamespace = 'public'::regnamespace
     union all
    select format('column %s %s %s %s %s', attrelid, attname, atttypid, attnotnull, attisdropped)
      from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = 'public'::regnamespace and attnum > 0
     union all
    select format('trigger %s %s', oid, tgenabled) from pg_trigger
     union all
    select format('constraint %s', oid) from pg_constraint where connamespace = 'public'::regnamespace
     union all
    select format('routine %s %s', oid, xmin) from pg_proc where pronamespace = 'public'::regnamespace
     union all
    select format('namespace %s', oid) from pg_namespace where nspname !~ '^pg_(toast_)?temp'
     union all
    select format('setting %s', setconfig) from pg_db_role_setting
      join pg_database on pg_database.oid = setdatabase where datname = current_database()
) as parts (what)
"""
"""Whatever a test may have changed beside rows; the same in all copies of a template."""
USED = """
select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0
"""


class Databases:
    """Copies of one template on one server."""

    def __init__(self, connection: psycopg.Connection[Any], server_url: str, template: str) -> None:
        """`connection` is the superuser's to another database of the server, and commits by itself."""
        self._connection, self._server_url, self._template = connection, server_url, template
        self._free: list[str] = []
        with psycopg.connect(address_of(server_url, template)) as to_template:
            self._kept = {name for (name,) in to_template.execute(USED)}
            self._made = self._look(to_template)

    def _look(self, connection: psycopg.Connection[Any]) -> list[object]:
        """Return what must be as it was made: the schema, and what the migrations have written."""
        rows = [connection.execute(f"select * from {name}").fetchall() for name in sorted(self._kept)]
        return [connection.execute(SCHEMA).fetchone(), *rows]

    @contextmanager
    def one(self) -> Iterator[str]:
        """Give the address of a fresh, migrated, empty database, under a name that nobody has known before."""
        name = f"test_{uuid4().hex[:12]}"
        if len(self._free) > 1:  # the server waits a while before it renames what was just in use
            self._connection.execute(f"alter database {self._free.pop(0)} rename to {name}")
        else:
            self._connection.execute(f"create database {name} template {self._template}")
        yield address_of(self._server_url, name)
        self._connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", [name]
        )
        if self._is_empty_again(name):
            self._free.append(name)
        else:
            self.drop(name)

    def _is_empty_again(self, name: str) -> bool:
        with psycopg.connect(address_of(self._server_url, name), autocommit=True) as connection:
            if self._look(connection) != self._made:
                return False
            used = [table for (table,) in connection.execute(USED) if table not in self._kept]
            if used:
                connection.execute(f"truncate {', '.join(used)} restart identity cascade")
        return True

    def drop(self, *names: str) -> None:
        """Drop some of them, or whatever is free."""
        for name in names or self._free:
            self._connection.execute(f"drop database {name} with (force)")
