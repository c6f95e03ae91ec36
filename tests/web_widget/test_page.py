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
from web_widget import build

STATIC = Path(web_widget.__file__).parent / "static"


def _config(script: str) -> dict[str, object]:
    told = json.loads(script.removesuffix(");\n").rpartition("})(")[2])
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
        "languages": ["es", "en", "pt"],
        "color": "#ffee00",
        "ink": "#000000",
    }


async def test_an_unchanged_script_is_not_sent_again(http: httpx.AsyncClient, service: Service) -> None:
    tag = (await http.get("/widget/acme.js")).headers["etag"]
    known = {"If-None-Match": f'"other", W/{tag}'}
    assert (await http.get("/widget/acme.js", headers=known)).status_code == 304
    service.tenants["acme"] = a_web_tenant("acme", greeting="Hi!")
    assert (await http.get("/widget/acme.js", headers=known)).status_code == 200


async def test_what_a_browser_loads_stays_light(http: httpx.AsyncClient, service: Service) -> None:
    launcher = await _compressed(http, "/widget/acme.js")
    assert len(launcher) < 2 * 1024
    names = re.findall(r'"?(\w+)"?:"(\w{43})"', gzip.decompress(launcher).decode())
    assert {name for name, _ in names} == {"en", "es", "pt", "frame"}
    for _, name in names:
        assert len(launcher) + len(await _compressed(http, f"/widget/acme/panel.{name}.js")) < 12 * 1024


async def _compressed(http: httpx.AsyncClient, path: str) -> bytes:
    async with http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.status_code == 200, path
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        return b"".join([piece async for piece in answer.aiter_raw()])


async def test_a_script_goes_out_as_it_is_where_the_browser_does_not_unpack(http: httpx.AsyncClient) -> None:
    tags = set()
    for accepted in ("gzip", "identity", "br, gzip;q=0"):
        answer = await http.get("/widget/acme.js", headers={"Accept-Encoding": accepted})
        assert answer.headers.get("content-encoding") == ("gzip" if accepted == "gzip" else None)
        assert _config(answer.text)["tenant"] == "acme"
        tags.add(answer.headers["etag"])
    assert len(tags) == 2


async def test_a_version_is_pinned_by_its_hash(http: httpx.AsyncClient) -> None:
    told = await http.get("/widget/acme/config", headers={"Origin": SHOP})
    assert told.headers["access-control-allow-origin"] == SHOP
    pin = told.json().pop("pin")
    pinned = await http.get(f"/widget/acme/{pin['file']}")
    assert pin["integrity"] == f"sha256-{b64encode(sha256(pinned.content).digest()).decode()}"
    assert pinned.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert pinned.headers["access-control-allow-origin"] == "*"
    embedded = _config((await http.get("/widget/acme.js")).text)
    assert embedded == {name: value for name, value in told.json().items() if name != "pin"}
    assert (await http.get("/widget/acme/config", headers={"Origin": "https://other.example"})).status_code == 403
    for name in ("loader.x.js", "panel.x.js", "panel.../versions.json"):
        assert (await http.get(f"/widget/acme/{name}")).status_code == 404


def test_what_is_served_is_what_the_sources_make() -> None:
    made = build.build(build.project_version())
    built = {path.name: path.read_bytes() for path in build.BUILT.iterdir()}
    assert {name: built.get(name) == content for name, content in made.items()} == dict.fromkeys(made, True), (
        "run: python -m web_widget.build"
    )
    listed = [name for each in json.loads(made["versions.json"]) for name in each["files"]]
    assert set(built) == {"versions.json", *listed, *(f"{name}.gz" for name in listed)}
    assert [name for name in listed if gzip.decompress(built[f"{name}.gz"]) != built[name]] == []


def test_no_source_makes_text_into_markup() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js"))
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", sources)
        == []
    )


def test_the_texts_are_the_same_in_each_language() -> None:
    languages = [json.loads(path.read_text(encoding="utf-8")) for path in (STATIC / "texts").iterdir()]
    shapes = [
        {part: list(texts) if isinstance(texts, dict) else len(texts) for part, texts in each.items()}
        for each in languages
    ]
    assert shapes == [shapes[0]] * 3


async def test_the_conversation_has_a_page_of_its_own(http: httpx.AsyncClient, service: Service) -> None:
    service.tenants["acme"] = a_web_tenant("acme", title="<b>Acme</b>", origins=(SHOP, "null"))
    answer = await http.get("/widget/acme", headers={"Accept-Language": "fr, pt-BR;q=0.8, en;q=0.5"})
    assert answer.status_code == 200
    assert '<html lang="pt">' in answer.text
    assert "&lt;b&gt;Acme&lt;/b&gt;" in answer.text
    assert "<b>Acme" not in answer.text
    assert '<script src="acme.js" data-full data-language="pt" defer>' in answer.text
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types vuelvo; "
        f"frame-ancestors 'self' {SHOP} file:"
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
