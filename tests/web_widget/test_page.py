import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

import web_widget
from tests.web_widget.conftest import SHOP, Service, a_web_tenant

SOURCE = Path(web_widget.__file__).parent / "static" / "widget.js"


def _config(script: str) -> dict[str, object]:
    told = json.loads(script.removeprefix("{const config = ").split(";\n", 1)[0])
    assert isinstance(told, dict)
    return told


async def test_the_script_knows_its_tenant(http: httpx.AsyncClient, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", title='A "quoted" </script> name', color="#ffee00")
    answer = await http.get("/widget/acme.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers["cache-control"] == "no-cache"
    assert _config(answer.text) == {
        "tenant": "acme",
        "title": 'A "quoted" </script> name',
        "greeting": None,
        "language": "es",
        "color": "#ffee00",
        "ink": "#000000",
    }


async def test_an_unchanged_script_is_not_sent_again(http: httpx.AsyncClient, service: Service) -> None:
    tag = (await http.get("/widget/acme.js")).headers["etag"]
    known = {"If-None-Match": f'"other", W/{tag}'}
    assert (await http.get("/widget/acme.js", headers=known)).status_code == 304
    service.tenants["acme"] = a_web_tenant("acme", greeting="Hi!")
    assert (await http.get("/widget/acme.js", headers=known)).status_code == 200


def test_the_script_stays_light_and_free_of_what_makes_text_into_markup() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    assert len(gzip.compress(source.encode(), 9)) <= 12 * 1024
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", source)
        == []
    )


async def test_the_conversation_has_a_page_of_its_own(http: httpx.AsyncClient, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", title="<b>Acme</b>", origins=(SHOP,))
    answer = await http.get("/widget/acme", headers={"Accept-Language": "fr, pt-BR;q=0.8, en;q=0.5"})
    assert answer.status_code == 200
    assert '<html lang="pt">' in answer.text
    assert "&lt;b&gt;Acme&lt;/b&gt;" in answer.text
    assert "<b>Acme" not in answer.text
    assert '<script src="acme.js" data-full data-language="pt" defer>' in answer.text
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors 'self' {SHOP}"
    )


@pytest.mark.parametrize(
    ("accepted", "language", "words"),
    [
        ("en-GB", "en", "Remind me in 10 seconds to call Ana"),
        ("es-MX,en;q=0.1", "es", "Recuérdame en 10 segundos llamar a Ana"),
        ("pt", "pt", "Me lembre em 10 segundos de ligar para a Ana"),
        ("de, *;q=0.5", "es", "Recuérdame"),
        ("en;q=0, de", "es", "Recuérdame"),
        (";;q=x,,", "es", "Recuérdame"),
    ],
)
async def test_the_first_page_says_what_to_try_in_the_visitors_language(
    http: httpx.AsyncClient, accepted: str, language: str, words: str
) -> None:
    answer = await http.get("/", headers={"Accept-Language": accepted})
    assert f'<html lang="{language}">' in answer.text
    assert words in answer.text
    assert f'<script src="widget/acme.js" data-open data-language="{language}" defer>' in answer.text
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    allowed = f"'sha256-{b64encode(sha256(style[1].encode()).digest()).decode()}'"
    assert allowed in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_unknown_tenant_gets_a_small_page_and_a_script_that_does_nothing(http: httpx.AsyncClient) -> None:
    page = await http.get("/widget/nobody", headers={"Accept-Language": "es"})
    assert (page.status_code, "Aquí no hay ningún chat" in page.text) == (404, True)
    assert "<script" not in page.text
    script = await http.get("/widget/nobody.js")
    assert script.status_code == 404
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert re.fullmatch(r'console\.warn\("[^"]+"\);\n', script.text)
