"""The short form of `make cuts`: a real server, real pages, and lines that break."""

from pathlib import Path

import pytest

from tests.cuts.plan import EVERYTHING, SHARES, UNNOTICED, Plan
from tests.cuts.run import run

SHORT = Plan(20, visitors=4, longest=2.0, is_patient=False)


@pytest.mark.browser
async def test_whatever_cuts_visitors_off_their_pages_show_the_log_once_and_in_order(tmp_path: Path) -> None:
    verdict = await run(SHORT, tmp_path)
    assert not verdict.broken, "\n".join(verdict.broken)
    assert verdict.done.total() == 20
    assert verdict.said["words"] > 10
    assert verdict.said["news"] > 20


def test_one_seed_is_one_plan() -> None:
    assert Plan(seed=7).of_visitors == Plan(seed=7).of_visitors
    assert Plan(seed=7).of_visitors != Plan(seed=8).of_visitors


def test_a_short_plan_has_some_of_everything_that_a_browser_notices_at_once() -> None:
    met = {each.kind for visitor in SHORT.of_visitors for each in visitor}
    assert met == {*SHARES, EVERYTHING} - {UNNOTICED}
