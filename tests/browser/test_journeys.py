"""What people come for, with the keyboard alone."""

from __future__ import annotations

import re

from orchestrator.dashboard import urls
from tests.browser.actions import Hands
from tests.browser.conftest import Trial, Watch


def test_is_the_release_green(watch: Watch) -> None:
    """One look at the board; one key more says which rule it is."""
    with watch() as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.RUNS)
        hands.press("g", "b")
        page.wait_for_url(eyes.served.url(urls.BOARD))
        answer = page.get_by_role("link", name=re.compile("^release:"))
        assert re.search("PASS|FAIL|INCONCLUSIVE", answer.inner_text())
        hands.tab_to(answer)
        hands.open(answer)
        rules = page.locator("#rules tbody tr")
        assert re.search("violated|unknown|waived|ok", rules.first.inner_text())


def test_why_did_this_fail(trial: Trial, watch: Watch) -> None:
    """From the list of runs to the failure's own words."""
    with watch() as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.GATES)
        hands.press("g", "r")
        page.wait_for_url(eyes.served.url(urls.RUNS))
        failed = page.locator(f"#runs a[href='{urls.run_url(trial.world.red)}']").first
        hands.down_to(failed)
        hands.open(failed)
        failure = page.locator("#failures tbody th a").first
        hands.tab_to(failure)
        hands.open(failure)
        assert page.get_by_role("heading", name="The newest of them").is_visible()
        assert re.search(r"^E  ", page.locator("pre").first.inner_text(), re.MULTILINE)


def test_is_it_flaky(watch: Watch) -> None:
    """From the list of flaky tests to what one of them did on every platform."""
    with watch() as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.RUNS)
        hands.press("g", "y")
        page.wait_for_url(eyes.served.url(urls.FLAKY))
        test = page.locator("#flaky tbody th a").first
        hands.press("j")
        hands.open(test)
        assert page.get_by_text("Reliability").is_visible()
        assert page.get_by_role("heading", name="On each platform").is_visible()


def test_what_changed_between_two_runs(trial: Trial, watch: Watch) -> None:
    """The environment first: what differs there explains much of the rest."""
    with watch() as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.run_url(trial.world.red))
        compare = page.get_by_role("link", name="Compare with the previous run")
        hands.tab_to(compare)
        hands.open(compare)
        said = page.locator("main h2").all_inner_texts()
        failures = next(number for number, text in enumerate(said) if "New failures" in text)
        assert said.index("Environment") < failures
        swap = page.get_by_role("button", name="Swap sides").or_(
            page.get_by_role("link", name="Swap sides")
        )
        hands.tab_to(swap)
        hands.open(swap)
        assert f"b={trial.world.red}" not in page.url


def test_the_focus_enters_a_grid_once_and_arrows_move_in_it(watch: Watch) -> None:
    with watch(width=1600) as eyes:
        hands, page = Hands(eyes), eyes.page
        eyes.open(urls.GRID)
        hands.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
        first = page.locator("#grid tbody th a").first
        hands.tab_to(first)
        hands.press("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft")
        at = page.evaluate(
            "(() => { const it = document.activeElement.closest('td, th');"
            " return [it.parentElement.sectionRowIndex, it.cellIndex]; })()"
        )
        assert at == [1, 1]
        hands.press("Tab")
        assert not page.evaluate("!!document.activeElement.closest('#grid tbody')")
