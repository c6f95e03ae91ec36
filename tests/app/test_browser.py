"""The main job as a person does it: the page that `vuelvo serve` prints, in a real browser.

With `VUELVO_TEST_SCREENSHOT` naming a file, the picture for README is taken on the way.
"""

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support.chromium import open_chromium
from tests.support.openai_server import OpenAIServer, Refuses
from tests.support.process import serving

pytestmark = pytest.mark.browser


async def test_a_reminder_is_asked_for_answered_and_comes_and_is_still_there_after_a_reload(tmp_path: Path) -> None:
    async with serving(directory=tmp_path) as (process, url), open_chromium() as browser:
        page = await browser.new_page(
            viewport={"width": 1060, "height": 680},
            device_scale_factor=2,
            locale="en-US",
            timezone_id="America/Bogota",
        )
        complaints: list[str] = []
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        await page.goto(url)
        field = page.get_by_role("dialog").get_by_role("textbox")
        await field.fill("remind me in 10 seconds to call Ana")
        await field.press("Enter")
        said = page.get_by_role("log").locator("li")
        await expect(said.filter(has_text="I'll remind you")).to_be_visible(timeout=5000)
        reminder = said.filter(has_text="Reminder: call Ana")
        await expect(reminder).to_have_count(0)
        await expect(reminder).to_be_visible(timeout=15_000)
        if picture := os.environ.get("VUELVO_TEST_SCREENSHOT"):
            await asyncio.sleep(0.3)  # the bubble moves in
            await page.screenshot(path=picture)
        await page.reload()
        await expect(reminder).to_have_count(1)
        await expect(said.filter(has_text="remind me in 10 seconds")).to_have_count(1)

        await field.fill("remind me in 4 seconds to water the plants")
        await field.press("Enter")
        await expect(said.filter(has_text="I'll remind you").nth(1)).to_be_visible(timeout=5000)
        port = url.rpartition(":")[2]
        await process.kill()
        async with serving(directory=tmp_path, environ={"VUELVO_PORT": port}):
            plants = said.filter(has_text="Reminder: water the plants")
            await expect(plants).to_be_visible(timeout=30_000)
            await page.reload()
            await expect(plants).to_have_count(1)
        assert not [line for line in complaints if "ERR_CONNECTION" not in line and "net::" not in line]


async def test_when_the_model_fails_the_visitor_is_told_in_words_and_may_write_on(tmp_path: Path) -> None:
    async with OpenAIServer(*[Refuses(400, "out of order")] * 3, "Here I am again.") as model:
        environ = {"VUELVO_MODEL": "openai-chat:local", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "any"}
        async with serving(directory=tmp_path, environ=environ) as (_, url), open_chromium() as browser:
            page = await browser.new_page(locale="en-US")
            await page.goto(url)
            field = page.get_by_role("dialog").get_by_role("textbox")
            await field.fill("Hello")
            await field.press("Enter")
            said = page.get_by_role("log").locator("li")
            await expect(said.filter(has_text="Sorry, I could not answer just now")).to_be_visible(timeout=30_000)
            await expect(page.get_by_text("Writing…")).to_be_hidden()
            await expect(page.get_by_text("out of order")).to_have_count(0)
            await field.fill("And now?")
            await field.press("Enter")
            await expect(said.filter(has_text="Here I am again.")).to_be_visible(timeout=15_000)
