"""What the widget costs the page it stands on: how long it blocks a slow phone, and how soon a visitor can write.

A headless Chromium whose processor is slowed down four times loads a bare page and the same page with the widget, in turns.
"""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.async_api import Browser, BrowserContext, Page

from benchmarks.measures import Measure
from benchmarks.server import Server, own_server
from benchmarks.visitors import TENANT, serving
from tests.support.chromium import open_chromium

SLOWER = 4
SLOW_4G = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 750e3 / 8}
"""As Lighthouse has it: a delay of 150 ms, 1.6 Mbit/s down and 0.75 up."""
SETTLES = 1500
"""Milliseconds after the page has loaded in which long tasks still count."""
BLOCKS = 50
"""Milliseconds that a task may take before it is felt."""

LONG_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
LAUNCHER = "[...document.querySelectorAll('*')].find((each) => each.shadowRoot)?.shadowRoot.querySelector('button[aria-controls]')"
OPEN = f"""async () => {{
  const launcher = {LAUNCHER}, began = performance.now();
  launcher.click();
  while (launcher.getRootNode().activeElement?.tagName !== "TEXTAREA") await new Promise(requestAnimationFrame);
  return performance.now() - began;
}}"""


class _Shop(BaseHTTPRequestHandler):
    """Answers with the bare page, or with the widget on it, named in the query."""

    def do_GET(self) -> None:
        script = self.path.partition("?")[2]
        tag = f'<script src="{script}" async></script>' if script else ""
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>The shop</title><link rel="icon" href="data:,">'
            f'<meta name="viewport" content="width=device-width">{tag}<h1>The shop</h1>{"<p>Everything.</p>" * 200}</html>'
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _shop() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()


@asynccontextmanager
async def _phone(browser: Browser) -> AsyncIterator[tuple[BrowserContext, Page]]:
    context = await browser.new_context(viewport={"width": 390, "height": 844}, locale="en-GB")
    await context.add_init_script(LONG_TASKS)
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    try:
        yield context, page
    finally:
        await context.close()


async def _load(browser: Browser, url: str) -> tuple[float, float, float]:
    """Return how long it took to load, how long tasks blocked in all beyond 50 ms each, and the longest, in ms."""
    async with _phone(browser) as (_, page):
        await page.goto(url, wait_until="load")
        await page.wait_for_timeout(SETTLES)
        took = await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        tasks: list[float] = await page.evaluate("tasks")
    return took, sum(task - BLOCKS for task in tasks), max(tasks, default=0.0)


async def _open(browser: Browser, url: str) -> tuple[float, float]:
    """Return how long it takes from a click until the visitor can write, over slow 4G: the first time, and on a later page."""
    taken = []
    async with _phone(browser) as (context, page):
        for _ in range(2):
            await page.goto(url, wait_until="networkidle")
            await page.wait_for_function(LAUNCHER)
            session = await context.new_cdp_session(page)
            await session.send("Network.enable")
            await session.send("Network.emulateNetworkConditions", SLOW_4G)
            taken.append(await page.evaluate(OPEN))
            await session.detach()
    return taken[0], taken[1]


async def page(runs: int, server: Server | None = None) -> list[Measure]:
    """Load both pages `runs` times each, in turns, and open the panel as often."""
    if server is None:
        async with own_server() as own:
            return await page(runs, own)
    pages: dict[str, list[tuple[float, float, float]]] = {"bare page": [], "vuelvo": []}
    opened: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="vuelvo-bench-") as place, _shop() as shop:
        async with (
            server.database() as name,
            serving(server.address(name), Path(place)) as service,
            open_chromium() as browser,
        ):
            widget = f"{shop}?http://localhost:{service.port}/widget/{TENANT}.js"
            await _load(browser, widget)  # the browser's own first time is nobody's
            for _ in range(runs):
                pages["bare page"].append(await _load(browser, shop))
                pages["vuelvo"].append(await _load(browser, widget))
                opened.append(await _open(browser, widget))
    titles = (
        "loaded",
        f"blocked by tasks beyond {BLOCKS} ms each, in all",
        f"the longest task, none below {BLOCKS} ms",
    )
    return [
        *(
            Measure(
                f"a page on a processor {SLOWER} times slower: {title}",
                "ms",
                {name: [each[at] for each in loads] for name, loads in pages.items()},
                is_less_better=True,
            )
            for at, title in enumerate(titles)
        ),
        *(
            Measure(
                f"from the click until one can write, there and over slow 4G: {title}",
                "ms",
                {"vuelvo": [each[at] for each in opened]},
                is_less_better=True,
            )
            for at, title in enumerate(("the first time", "on a later page"))
        ),
    ]
