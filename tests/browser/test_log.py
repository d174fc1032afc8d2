"""The log of a cell in a real browser: any length, live, searchable, and nothing but text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import signed_in
from tests.browser.log_view import Open, a_log, expect, seen, shows, until
from tests.browser.log_world import Writer, writer
from tests.browser.page_watch import MOST_NODES, watched
from tests.browser.server import served
from tests.ssh_hosts import free_port

MILLION = 1_000_000
_TOTAL = "parseInt(document.querySelector('[data-count]').innerText.replaceAll(',', ''))"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def live(home: Path) -> Iterator[Writer]:
    """Its log begins with so many numbered lines."""
    with writer(home) as found:
        found.number(1, 1000)
        yield found


@pytest.fixture(scope="module")
def look(chromium: Browser, live: Writer, home: Path) -> Iterator[Open]:
    with served(home, "--no-cells") as it:
        yield partial(watched, chromium, it, signed_in(chromium, it))


@pytest.fixture(scope="module")
def long_log(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """A log of a million lines that is over."""
    with a_log(chromium, tmp_path_factory.mktemp("long"), lines=MILLION) as opened:
        yield opened


def right(page: Page) -> list[int]:
    """Numbers of the lines in sight, each with its own text, one after the other."""
    lines = seen(page)
    assert [text for _, text in lines] == [f"line {number} of the log" for number, _ in lines]
    numbers = [number for number, _ in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers


def test_a_million_lines_are_a_few_rows(long_log: Open) -> None:
    with long_log() as eyes:
        expect(eyes.page, MILLION)
        numbers = right(eyes.page)
        assert numbers[-1] == MILLION
        assert len(numbers) > 20
        assert eyes.page.evaluate("document.getElementsByTagName('*').length") < MOST_NODES / 5
        assert "1,000,000 lines" in eyes.page.locator(".log-foot").inner_text()


def test_the_bar_leads_anywhere_and_the_wheel_goes_line_by_line(long_log: Open) -> None:
    with long_log() as eyes:
        page = eyes.page
        expect(page, MILLION)
        page.evaluate("(b => b.scrollTop = b.scrollHeight / 2)(document.querySelector('.log-box'))")
        until(lambda: seen(page)[0][0] < 600_000)
        first = right(page)[0]
        assert 450_000 < first < 550_000
        page.locator(".log-box").hover()
        for turned in (1, 2, 3):
            page.mouse.wheel(0, 100)
            until(lambda turned=turned: right(page)[0] == first + 5 * turned)
        page.wait_for_timeout(400)  # the bar is put where it belongs, and nothing moves
        assert right(page)[0] == first + 15


def test_keys_lead_to_both_ends_and_back_page_by_page(long_log: Open) -> None:
    with long_log() as eyes:
        page = eyes.page
        expect(page, MILLION)
        page.locator(".log-box").focus()
        page.keyboard.press("g")
        expect(page, 1)
        page.keyboard.press("PageDown")
        until(lambda: 20 < right(page)[0] < 60)
        page.keyboard.press("Shift+G")
        expect(page, MILLION)
        page.keyboard.press("Home")
        expect(page, 1)
        page.keyboard.press("End")
        expect(page, MILLION)


def test_scrolling_far_up_by_small_steps_comes_to_the_first_line(long_log: Open) -> None:
    with long_log("?line=12000") as eyes:
        page = eyes.page
        expect(page, 12_000)
        page.locator(".log-box").hover()
        for _ in range(200):
            page.mouse.wheel(0, -1400)
        expect(page, 1)
        assert right(page)[0] == 1


def test_a_line_has_an_address(long_log: Open) -> None:
    for query in ("?line=654321", "#L654321"):
        with long_log(query) as eyes:
            expect(eyes.page, 654_321)
            chosen = eyes.page.locator(".log-row.chosen")
            assert chosen.get_attribute("id") == "L654321"
            assert eyes.page.locator(".log-row.chosen [aria-current]").inner_text() == "654321"


def test_a_line_that_is_clicked_is_chosen_and_stays_where_it_is(long_log: Open) -> None:
    with long_log("?line=500") as eyes:
        page = eyes.page
        expect(page, 500)
        before = right(page)
        row = page.locator("#L505").element_handle()
        page.locator("#L505 .log-number").click()
        until(lambda: "line=505" in page.url)
        assert right(page) == before
        assert row.evaluate("(it) => it.isConnected && it.classList.contains('chosen')")
        assert page.locator(".chosen").count() == 1
        page.keyboard.press("j")
        until(lambda: "line=506" in page.url)


def test_words_are_found_forwards_backwards_and_round_the_end(long_log: Open) -> None:
    with long_log() as eyes:
        page = eyes.page
        expect(page, MILLION)
        page.keyboard.press("/")
        page.keyboard.type("LINE 77777")
        page.keyboard.press("Enter")
        expect(page, 77_777)
        assert page.locator(".log-row.chosen mark").inner_text() == "line 77777"
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        expect(page, 777_770)
        page.keyboard.press("Shift+N")
        expect(page, 77_777)
        page.keyboard.press("Shift+N")
        expect(page, 777_779)
        assert page.locator(".log-said").inner_text() == "From the end."
        assert "find=LINE+77777" in page.url
        page.locator("[name='case']").check()
        page.get_by_role("button", name="Next").click()
        until(lambda: page.locator(".log-said").inner_text() == "Not in this log.")


def test_what_is_not_there_is_said_after_all_was_searched(long_log: Open) -> None:
    with long_log("?line=500000") as eyes:
        page = eyes.page
        expect(page, 500_000)
        page.locator("[name='find']").fill("nowhere")
        page.keyboard.press("Enter")
        until(lambda: page.locator(".log-said").inner_text() == "Not in this log.")
        assert shows(page, 500_000)


def test_a_long_log_takes_little_memory(long_log: Open) -> None:
    with long_log() as eyes:
        page = eyes.page
        expect(page, MILLION)
        for at in range(0, 100, 4):
            page.evaluate(
                "(at) => { const b = document.querySelector('.log-box');"
                " b.scrollTop = b.scrollHeight * at / 100; }",
                at,
            )
            page.wait_for_timeout(60)
        until(lambda: seen(page)[0][1].startswith("line "))
        right(page)
        page.context.new_cdp_session(page).send("HeapProfiler.collectGarbage")
        heap = page.evaluate("performance.memory.usedJSHeapSize")
        assert heap < 60_000_000, heap


def test_without_javascript_the_end_is_read_and_pages_lead_on(long_log: Open) -> None:
    with long_log(scripts=False) as eyes:
        page = eyes.page
        rows = page.locator(".log-row")
        assert rows.count() == 500
        assert rows.last.inner_text().replace("\t", " ").split() == [
            "1000000",
            *["line", "1000000", "of", "the", "log"],
        ]
        page.get_by_role("link", name="Earlier").click()
        assert page.locator(".log-row").first.get_attribute("id") == "L999001"
        page.locator("[name='find']").fill("line 4242 ")
        page.get_by_role("button", name="Next").click()
        assert page.locator(".log-row.chosen").get_attribute("id") == "L4242"
        page.get_by_role("button", name="Next").click()
        said = page.locator(".log-said")
        steps = 0
        while said.inner_text().startswith("Not found as far as line "):
            said.get_by_role("link", name="Go on").click()
            steps += 1
        assert 2 < steps < 12, "a few mebibytes at a time"
        assert said.inner_text().startswith("None after line ")


def test_new_lines_come_by_themselves_and_the_newest_stays_in_sight(
    look: Open, live: Writer
) -> None:
    with look() as eyes:
        page = eyes.page
        eyes.open(live.path)
        until(lambda: page.locator(".log-state").inner_text() == "● live")
        for number in range(3):
            live.write(f"something new {number}\n")
            until(lambda n=number: seen(page)[-1][1] == f"something new {n}")
        live.write("half a li")
        until(lambda: seen(page)[-1][1] == "half a li")
        live.write("ne\n")
        until(lambda: seen(page)[-1][1] == "half a line")
        eyes.look()
        eyes.ask_axe()


def test_who_scrolls_up_is_left_there_and_told_what_is_new(look: Open, live: Writer) -> None:
    with look() as eyes:
        page = eyes.page
        eyes.open(live.path)
        follow = page.get_by_role("button", name="Follow")
        until(lambda: page.locator(".log-state").inner_text() == "● live")
        page.locator(".log-box").hover()
        page.mouse.wheel(0, -600)
        until(lambda: follow.get_attribute("aria-pressed") == "false")
        before = seen(page)
        live.write("one\ntwo\n")
        fresh = page.locator(".log-new")
        until(lambda: fresh.inner_text() == "2 new lines")
        assert seen(page) == before
        fresh.click()
        until(lambda: seen(page)[-1][1] == "two")
        until(lambda: follow.get_attribute("aria-pressed") == "true")
        assert fresh.is_hidden()
        page.keyboard.press("f")
        assert follow.get_attribute("aria-pressed") == "false"
        live.write("three\n")
        until(lambda: fresh.is_visible())


def test_who_scrolls_up_while_lines_pour_in_is_left_there(look: Open, live: Writer) -> None:
    enough = threading.Event()

    def pour() -> None:
        while not enough.wait(0.02):
            live.write("more\n")

    pouring = threading.Thread(target=pour)
    with look() as eyes:
        page = eyes.page
        eyes.open(live.path)
        follow = page.get_by_role("button", name="Follow")
        until(lambda: page.locator(".log-state").inner_text() == "● live")
        page.locator(".log-box").hover()
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 8})
        pouring.start()
        try:
            for _ in range(8):
                page.mouse.wheel(0, -400)
                until(lambda: follow.get_attribute("aria-pressed") == "false")
                page.wait_for_timeout(400)
                assert follow.get_attribute("aria-pressed") == "false"
                follow.click()
                page.locator(".log-box").hover()
        finally:
            enough.set()
            pouring.join()


def test_nothing_is_lost_or_doubled_when_the_browser_was_away(look: Open, live: Writer) -> None:
    with look() as eyes:
        page = eyes.page
        eyes.open(live.path)
        until(lambda: page.locator(".log-state").inner_text() == "● live")
        begin = page.evaluate("Number(document.querySelector('.log-row:last-child').id.slice(1))")
        live.number(1, 50)
        until(lambda: seen(page)[-1][1] == "line 50 of the log")
        page.context.set_offline(True)
        live.number(51, 700)
        until(lambda: "lost" in page.locator(".log-state").inner_text())
        page.context.set_offline(False)
        until(lambda: seen(page)[-1][1] == "line 700 of the log")
        assert read_all(page, begin + 1) == [
            f"line {number} of the log" for number in range(1, 701)
        ]
        eyes.wrong = [it for it in eyes.wrong if "ERR_INTERNET_DISCONNECTED" not in it]


def read_all(page: Page, first: int) -> list[str]:
    """What the viewer shows from a line to the end, looked through screen by screen."""
    found: dict[int, str] = {}
    page.locator(".log-box").focus()
    page.keyboard.press("g")
    page.wait_for_timeout(100)
    total = page.evaluate(_TOTAL)
    while total not in found:
        lines = seen(page)
        found |= dict(lines)
        if total not in found:
            page.evaluate("(b => b.scrollTop += b.clientHeight - 60)(document.activeElement)")
            until(lambda lines=lines: seen(page)[:1] != lines[:1])
    assert sorted(found) == list(range(1, max(found) + 1))
    return [found[number] for number in sorted(found) if number >= first]


def test_the_server_may_be_started_again(chromium: Browser, tmp_path: Path) -> None:
    port = free_port()
    with writer(tmp_path) as found:
        found.number(1, 10)
        with served(tmp_path, "--no-cells", port=port) as it:
            state = signed_in(chromium, it)
            context = chromium.new_context(storage_state=state)
            page = context.new_page()
            page.goto(it.url(found.path))
            until(lambda: page.locator(".log-state").inner_text() == "● live")
        found.number(11, 60)
        until(lambda: "lost" in page.locator(".log-state").inner_text())
        with served(tmp_path, "--no-cells", port=port):
            until(lambda: seen(page)[-1][1] == "line 60 of the log", within_s=60)
            found.number(61, 90)
            until(lambda: seen(page)[-1][1] == "line 90 of the log")
            assert read_all(page, 1) == [f"line {number} of the log" for number in range(1, 91)]
            found.retry()
            found.write("a second try\n")
            until(lambda: "attempt 2 has begun" in page.locator(".log-state").inner_text())
            page.locator(".log-state a").click()
            until(lambda: [text for _, text in seen(page)] == ["a second try"])
            found.finish()
            until(lambda: page.locator(".log-state").inner_text() == "ended")
            context.close()


def test_a_wild_log_is_text(look: Open, live: Writer) -> None:
    live.write(
        "\x1b[31;1mred\x1b[0m <img src=x onerror=alert(1)>\x1b]0;title\x07\n"
        " 10%\r 50%\r\x1b[32m100%\x1b[0m\n"
        "user\u202etxt.exe\u200b\n" + "x" * 1_000_000 + "\n" + "\u4f60\U0001f600\tend\n"
    )
    for scripts in (True, False):
        with look(scripts=scripts, width=400) as eyes:
            page = eyes.page
            eyes.open(live.path)
            rows = page.locator(".log-text")
            until(lambda rows=rows: rows.last.inner_text().endswith("end"))
            texts = rows.all_inner_texts()[-5:]
            assert texts[0] == "red <img src=x onerror=alert(1)>"
            assert texts[1] == "100%"
            assert texts[2] == "user\\u202etxt.exe\\u200b"
            assert len(texts[3]) < 2_100
            assert page.locator(".log-row .t-red.t-bold").last.inner_text() == "red"
            page.get_by_role("link", name="whole line, 1.0 MB").last.click()
            assert page.locator("h1").inner_text().startswith("Line ")
            assert len(page.locator(".log-line").inner_text()) == 64_000
            page.get_by_role("link", name="Goes on").click()
            assert "Bytes 64,000 to 128,000 of 1,000,000" in page.locator(".page-head").inner_text()
            eyes.look()


def test_the_log_is_saved_as_it_came(look: Open, live: Writer) -> None:
    with look() as eyes:
        page = eyes.page
        eyes.open(live.path)
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download").click()
        assert saved.value.suggested_filename == "p0-1.log"
        data = Path(saved.value.path()).read_bytes()
        assert len(data) == live.written
        assert data.startswith(b"line 1 of the log\n")
