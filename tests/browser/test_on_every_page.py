"""What every page can do: keys, schemes, copying, times in the viewer's zone."""

from __future__ import annotations

import re

from orchestrator.dashboard import urls
from tests.browser.conftest import Trial, Watch
from tests.browser.log_view import until
from tests.browser.page_watch import Watched

_FOCUSED = "document.activeElement"
_LUMINANCE = "getComputedStyle(document.body).backgroundColor"


def path_of(eyes: Watched) -> str:
    return eyes.page.url.removeprefix(eyes.served.origin)


def test_the_first_stop_leads_past_the_way_about(watch: Watch) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        eyes.page.keyboard.press("Tab")
        assert eyes.page.evaluate(f"{_FOCUSED}.textContent") == "Skip to the content"
        eyes.page.keyboard.press("Enter")
        assert eyes.page.evaluate(f"{_FOCUSED}.id") == "main"


def test_g_and_a_letter_lead_to_every_page_of_the_way_about(watch: Watch) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        keys = eyes.page.locator("a[data-key]").evaluate_all(
            "(all) => all.map((a) => [a.dataset.key, a.getAttribute('href')])"
        )
        assert len({key for key, _ in keys}) == len(keys) >= 13
        for key, href in keys:
            eyes.page.keyboard.press("g")
            eyes.page.keyboard.press(key)
            eyes.page.wait_for_url(eyes.served.url(href))


def test_a_question_mark_shows_the_keys_and_escape_hides_them(watch: Watch) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        eyes.page.keyboard.press("?")
        box = eyes.page.get_by_role("dialog", name="Keyboard")
        assert box.is_visible()
        assert "Known issues" in box.inner_text()
        assert "Europe/Berlin" in box.inner_text()
        eyes.ask_axe()
        eyes.page.keyboard.press("Escape")
        assert not box.is_visible()


def test_single_letters_can_be_turned_off(watch: Watch) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        eyes.page.keyboard.press("?")
        eyes.page.get_by_label("Single letters are shortcuts").press("Space")
        eyes.page.keyboard.press("Escape")
        eyes.page.reload()
        eyes.page.keyboard.press("?")
        assert not eyes.page.get_by_role("dialog", name="Keyboard").is_visible()
        eyes.page.keyboard.press("g")
        eyes.page.keyboard.press("m")
        assert path_of(eyes) == urls.RUNS


def test_j_and_k_and_arrows_go_from_row_to_row(watch: Watch, trial: Trial) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        seen = []
        for key in ("j", "j", "ArrowDown", "k", "ArrowUp"):
            eyes.page.keyboard.press(key)
            seen.append(eyes.page.evaluate(f"{_FOCUSED}.closest('tr')?.sectionRowIndex"))
        assert seen == [0, 1, 2, 1, 0]
        eyes.page.keyboard.press("Enter")
        eyes.page.wait_for_url(re.compile(re.escape(f"{eyes.served.origin}{urls.RUNS}/")))


def test_a_chosen_scheme_stays_and_is_there_before_anything_is_drawn(watch: Watch) -> None:
    with watch(scheme="light") as eyes:
        eyes.open(urls.RUNS)
        light = eyes.page.evaluate(_LUMINANCE)
        button = eyes.page.get_by_role("button", name="Colours")
        button.click()
        assert eyes.page.evaluate(_LUMINANCE) == light, "chosen is what it was"
        button.click()
        dark = eyes.page.evaluate(_LUMINANCE)
        assert dark != light
        eyes.page.add_init_script(
            "document.addEventListener('DOMContentLoaded', () => "
            f"{{ window.atFirst = {_LUMINANCE}; }})"
        )
        eyes.open(urls.RUNS)
        assert eyes.page.evaluate("window.atFirst") == dark
        eyes.page.get_by_role("button", name="Colours").click()
        assert eyes.page.evaluate(_LUMINANCE) == light, "and back to the system's"


def test_a_table_is_copied_as_markdown_and_readers_hear_of_it(watch: Watch) -> None:
    with watch() as eyes:
        eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        eyes.open(urls.RUNS)
        eyes.page.get_by_role("button", name="Copy as Markdown").first.click()
        eyes.page.get_by_role("status").get_by_text("Copied as Markdown").wait_for()
        text = eyes.page.evaluate("navigator.clipboard.readText()")
        assert text.count("\n| ") > 10, "a row for each run"
        assert "| Outcome |" in text


def test_times_are_the_viewers_and_their_titles_utc(watch: Watch) -> None:
    with watch() as eyes:
        eyes.open(urls.RUNS)
        time = eyes.page.locator("td time:not([data-age])").first
        iso = time.get_attribute("datetime") or ""
        expected = eyes.page.evaluate(
            "(iso) => new Intl.DateTimeFormat('sv-SE', {timeZone: 'Europe/Berlin', "
            "dateStyle: 'short', timeStyle: 'short'}).format(new Date(iso))",
            iso,
        )
        assert time.inner_text() == expected
        assert time.get_attribute("title") == f"{iso[:19].replace('T', ' ')} UTC"
    with watch(scripts=False) as eyes:
        eyes.open(urls.RUNS)
        assert eyes.page.locator("td time:not([data-age])").first.inner_text().endswith(" UTC")


def test_the_head_of_a_long_table_stays_in_sight(watch: Watch) -> None:
    with watch(width=1600) as eyes:
        eyes.open(urls.RUNS)
        eyes.page.mouse.wheel(0, 900)
        until(lambda: eyes.page.evaluate("scrollY > 0"))

        def is_in_sight() -> bool:
            head = eyes.page.locator("thead th").first.bounding_box()
            return head is not None and 0 <= head["y"] < 60

        until(is_in_sight)
