"""Servers of a tenant's own, whose tools its agent may use. The library for them is loaded when a tenant has one."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import httpx2
from pydantic_ai.toolsets import AbstractToolset

from agent.section import AgentSection, McpServer

MakeClient = Callable[[McpServer], httpx2.AsyncClient]
"""Makes what one connection to a server goes by. It alone decides what may be reached: it is the only way out."""


class Servers:
    """The tools of each tenant's servers, which remember what a server has, and for a while that it is down."""

    def __init__(self, make_client: MakeClient) -> None:
        self._make_client = make_client
        self._made: dict[tuple[str, str], tuple[McpServer, AbstractToolset[Any]]] = {}

    async def tools(self, tenant: str, section: AgentSection) -> Sequence[AbstractToolset[Any]]:
        """Return the tools of a tenant's servers as they are configured now."""
        if not section.mcp:
            return ()
        own_tools = await asyncio.to_thread(import_module, "agent.own_tools")
        for server in section.mcp:
            known = self._made.get((tenant, server.name))
            if known is None or known[0] != server:
                self._made[tenant, server.name] = (server, own_tools.OwnTools(tenant, server, self._make_client))
        return [self._made[tenant, server.name][1] for server in section.mcp]
