"""What a browser loads: the script a business embeds, and the service's own two pages with the widget on them."""

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from channels.web.section import OF_A_FILE, ink_on
from web_widget.scripts import answer_script, scripts
from web_widget.web import Web, WebTenant

Handler = Callable[[Request], Awaitable[Response]]

COLOR = "#1f4fa3"
"""The widget's own colour, where the tenant names none."""

TRIED_FROM = ("http://localhost:*", "http://127.0.0.1:*", "file:")
"""Pages that may frame the widget of a tenant that names none: on the developer's own machine."""

_HERE = Path(__file__).parent
_TALK_PAGE, _DEMO_PAGE, _MISSING_PAGE = (
    Template((_HERE / "templates" / name).read_text(encoding="utf-8"))
    for name in ("page.html", "demo.html", "missing.html")
)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)

_TALK = {
    "en": {"no_script": "This chat needs JavaScript."},
    "es": {"no_script": "Este chat necesita JavaScript."},
    "pt": {"no_script": "Este chat precisa de JavaScript."},
}

_DEMO = {
    "en": {
        "heading": "An assistant that comes back",
        "lead": "Write to it here. What it cannot tell you now, it books, and comes back with it in this conversation.",
        "try": "Try it:",
        "first": "“Remind me in 10 seconds to call Ana”",
        "second": "“What is pending?”",
        "third": "Book something, close this page and open it again: the answer is waiting for you.",
    },
    "es": {
        "heading": "Un asistente que vuelve",
        "lead": "Escríbale aquí. Lo que no puede decirle ahora, lo agenda, y vuelve con ello a esta conversación.",
        "try": "Pruebe:",
        "first": "«Recuérdame en 10 segundos llamar a Ana»",
        "second": "«¿Qué tengo pendiente?»",
        "third": "Agende algo, cierre esta página y ábrala otra vez: la respuesta le espera.",
    },
    "pt": {
        "heading": "Um assistente que volta",
        "lead": "Escreva para ele aqui. O que não pode dizer agora, ele agenda, e volta com isso a esta conversa.",
        "try": "Experimente:",
        "first": "“Me lembre em 10 segundos de ligar para a Ana”",
        "second": "“O que tenho pendente?”",
        "third": "Agende algo, feche esta página e abra de novo: a resposta estará à sua espera.",
    },
}

_MISSING = {
    "en": {"heading": "There is no chat here", "lead": "Please check the address."},
    "es": {"heading": "Aquí no hay ningún chat", "lead": "Revise la dirección, por favor."},
    "pt": {"heading": "Não há nenhum chat aqui", "lead": "Confira o endereço, por favor."},
}


def serve_script(web: Web) -> Handler:
    """Return the handler of `/widget/{tenant}.js`."""

    async def answer(request: Request) -> Response:
        tenant = await _find(web, request.path_params["tenant"])
        if tenant is None:
            return _no_script()
        config = json.dumps(config_of(tenant), separators=(",", ":"))
        headers = {"cache-control": "no-cache", "access-control-allow-origin": "*"}
        return answer_script(request, scripts().with_config(config), headers)

    return answer


async def serve_built_script(request: Request) -> Response:
    """Answer `/widget/{tenant}/{script}.{hash}.js`, the same for every tenant, for ever."""
    name = request.url.path.rpartition("/")[2]
    script = scripts().files.get(name)
    if script is None:
        return _no_script()
    headers = {"cache-control": "public, max-age=31536000, immutable", "access-control-allow-origin": "*"}
    return answer_script(request, script.plain, headers, script.compressed)


def serve_page(web: Web) -> Handler:
    """Return the handler of `/widget/{tenant}`: the conversation as a page of its own."""

    async def answer(request: Request) -> Response:
        tenant = await _find(web, request.path_params["tenant"])
        if tenant is None:
            return _missing(request)
        language = language_of(request, tenant.languages)
        return _page(
            _TALK_PAGE,
            language,
            _TALK[language] | {"title": title_of(tenant), "script": f"{quote(tenant.name, safe='')}.js"},
            embedded_by=("'self'", *_framing(tenant.section.origins)),
        )

    return answer


def _framing(origins: Sequence[str]) -> Sequence[str]:
    """Return the pages of these origins as `frame-ancestors` names them: a file by its scheme."""
    return ["file:" if origin == OF_A_FILE else origin for origin in origins] or TRIED_FROM


def demo_page(web: Web, name: str) -> Handler:
    """Return the handler of `/`: what there is to try, with a tenant's widget open beside it."""

    async def answer(request: Request) -> Response:
        tenant = await _find(web, name)
        if tenant is None:
            return _missing(request)
        language = language_of(request, tenant.languages)
        script = f"widget/{quote(tenant.name, safe='')}.js"
        return _page(_DEMO_PAGE, language, _DEMO[language] | {"title": title_of(tenant), "script": script})

    return answer


def title_of(tenant: WebTenant) -> str:
    """Return what the widget is called."""
    return tenant.section.title or tenant.title


def language_of(request: Request, languages: Sequence[str]) -> str:
    """Return the first of the browser's languages that is among these, else the first of these."""
    weighed: list[tuple[float, str]] = []
    for choice in request.headers.get("accept-language", "").split(","):
        tag, _, parameter = choice.partition(";")
        weight = re.fullmatch(r"\s*q=([01](?:\.[0-9]{0,3})?)\s*", parameter)
        weighed.append((float(weight[1]) if weight else 1.0, tag.strip().lower()[:2]))
    chosen = [tag for weight, tag in sorted(weighed, key=lambda each: -each[0]) if weight > 0]
    return next(tag for tag in [*chosen, languages[0]] if tag in languages)


async def _find(web: Web, name: str) -> WebTenant | None:
    # PostgreSQL takes no NUL, not even to look for it.
    return None if "\0" in name else await web.find_tenant(name)


def config_of(tenant: WebTenant) -> dict[str, Any]:
    """Return what the launcher is told of a tenant."""
    color = tenant.section.color or COLOR
    told = {
        "tenant": tenant.name,
        "title": title_of(tenant),
        "greeting": tenant.section.greeting,
        "languages": list(tenant.languages),
        "color": color,
        "ink": ink_on(color),
    }
    return {name: value for name, value in told.items() if value is not None}


def pinned_config(tenant: WebTenant) -> dict[str, Any]:
    """Return what a pinned launcher asks for, and what to pin now: `{…, "pin": {"file", "integrity"}}`."""
    return config_of(tenant) | {"pin": {"file": scripts().loader, "integrity": scripts().integrity()}}


def _no_script() -> Response:
    line = 'console.warn("Vuelvo: there is no widget under this name. Check the address of the script.");\n'
    headers = {
        "cache-control": "no-cache",
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
    }
    return Response(line, status_code=404, media_type="text/javascript", headers=headers)


def _missing(request: Request) -> Response:
    language = language_of(request, [*_MISSING])
    return _page(_MISSING_PAGE, language, _MISSING[language], status=404)


def _page(
    template: Template,
    language: str,
    words: dict[str, str],
    *,
    status: int = 200,
    embedded_by: tuple[str, ...] = ("'none'",),
) -> Response:
    html = template.substitute({name: escape(word) for name, word in words.items()}, language=language)
    style = "".join(
        f" 'sha256-{b64encode(sha256(found.encode()).digest()).decode()}'" for found in _STYLE.findall(html)
    )
    policy = (
        "default-src 'none'; script-src 'self'; connect-src 'self'; "
        f"style-src 'self'{style}; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types vuelvo; "
        f"frame-ancestors {' '.join(embedded_by)}"
    )
    return HTMLResponse(
        html,
        status_code=status,
        headers={
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "same-origin",
            "cache-control": "no-cache",
            "vary": "Accept-Language",
        },
    )
