"""A real browser for the tests that need one: the system's Chromium, never a downloaded one."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
)

WITHOUT = (
    # Two pages of Chromium's own, for its address bar, which nobody sees here: more than half of what it costs to open a
    # page of ours.
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
    # What Playwright turns off itself: of two lists Chromium takes the last one.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
)
"""Features of Chromium that are turned off."""


def find_chromium() -> str:
    """Return the path of a Chromium: `CHROMIUM`, else the first on the PATH.

    Where there is none the test is skipped, and fails under CI, where it must not go unnoticed.
    """
    given = os.environ.get("CHROMIUM")
    found = given or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        words = "no Chromium: install one (Debian: apt-get install chromium) or name its path in CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Browser]:
    """Run a headless Chromium for as long as the block runs."""
    path = find_chromium()
    async with async_playwright() as playwright:
        features = f"--disable-features={','.join(WITHOUT)}"
        browser = await playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, features])
        try:
            yield browser
        finally:
            await browser.close()
