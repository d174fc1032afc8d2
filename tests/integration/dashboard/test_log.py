"""The log of a cell as pages and programs get it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestrator.dashboard.pages.log import LONGEST, MOST_PARTS
from orchestrator.store.attempt_evidence import AttemptLog
from tests.databases import Agent, write_log
from tests.integration.dashboard.desk import PageDesk


@dataclass
class Log:
    """A running cell, and its log."""

    pages: PageDesk
    run: str
    agent: Agent
    written: int = 0

    @property
    def path(self) -> str:
        return f"/runs/{self.run}/cells/here/log"

    def write(self, text: str) -> None:
        data = text.encode()
        assert write_log(self.pages.stores, self.agent.attempt_id, data, offset=self.written)
        self.written += len(data)


@pytest.fixture
def log(pages: PageDesk) -> Log:
    run = str(pages.api.launch()["id"])
    return Log(pages, run, pages.api.begin(run, "here"))


@pytest.fixture(scope="module")
def long(shared_pages: PageDesk) -> Log:
    """A log of 1,200 lines that nobody writes any more."""
    run = str(shared_pages.api.launch()["id"])
    made = Log(shared_pages, run, shared_pages.api.begin(run, "here"))
    made.write("".join(f"line {n}\n" for n in range(1, 1201)))
    return made


def told(log: Log, query: str = "") -> dict:
    answer: dict = log.pages.json(f"{log.path}{query}")
    return answer


def texts(answer: dict) -> list[str]:
    return ["".join(text for text, _ in line["parts"]) for line in answer["lines"]]


def test_a_cell_that_has_not_begun_says_so(log: Log) -> None:
    page = log.pages.page(f"/runs/{log.run}/cells/there/log")
    assert "Nothing was written yet: the cell is queued." in page.one(class_="empty").text
    assert not page.all(data_log="*")


def test_lines_are_given_by_their_numbers(log: Log) -> None:
    log.write("".join(f"line {n}\n" for n in range(1, 1201)) + "half")
    answer = told(log, "?from=600&count=2")
    assert texts(answer) == ["line 600", "line 601"]
    assert [line["line"] for line in answer["lines"]] == [600, 601]
    assert (answer["total"], answer["has_open_line"], answer["is_over"]) == (1201, True, False)
    assert answer["size_bytes"] == log.written
    assert (answer["attempt"], answer["attempts"][0]["number"]) == (1, 1)
    assert texts(told(log))[-1] == "half"
    assert len(told(log)["lines"]) == 500
    assert texts(told(log, "?line=1000&count=3")) == ["line 999", "line 1000", "line 1001"]


def test_what_grew_is_there_at_once_and_nothing_twice(log: Log) -> None:
    log.write("one\ntw")
    assert texts(told(log)) == ["one", "tw"]
    log.write("o\nthree\n")
    answer = told(log, "?from=2")
    assert texts(answer) == ["two", "three"]
    assert not answer["has_open_line"]


def test_who_is_late_sees_what_there_was_and_nobody_scans_anew(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("".join(f"line {n}\n" for n in range(1, 1201)))
    logs = log.pages.stores.logs
    of_cell, read, begun = logs.of_cell, logs.read, []

    def late(cell_id: str) -> list[AttemptLog]:
        """Somebody else looks at what came meanwhile."""
        found = of_cell(cell_id)
        monkeypatch.setattr(logs, "of_cell", of_cell)
        log.write("".join(f"line {n}\n" for n in range(1201, 2401)))
        assert told(log)["total"] == 2400
        return found

    def counted(attempt_id: str, *, after: int, limit: int) -> bytes:
        begun.append(after)
        return read(attempt_id, after=after, limit=limit)

    monkeypatch.setattr(logs, "of_cell", late)
    answer = told(log)
    assert (answer["total"], texts(answer)[-1]) == (1200, "line 1200")
    monkeypatch.setattr(logs, "read", counted)
    assert texts(told(log, "?from=2100&count=1")) == ["line 2100"]
    assert len(begun) == 1  # of the window


def test_the_page_has_the_end_and_ways_to_the_rest(long: Log) -> None:
    page = long.pages.page(long.path)
    rows = page.all(class_="log-row")
    assert (len(rows), rows[0]["id"], rows[-1]["id"]) == (500, "L701", "L1200")
    earlier = page.one("a", rel="prev")["href"]
    before = long.pages.page(earlier)
    assert before.all(class_="log-row")[0]["id"] == "L201"
    assert before.one("a", rel="next")["href"].endswith("from=701")
    box = page.one("section", class_="log")
    assert box["data-stream"].startswith(f"/api/v1/runs/{long.run}/events?after=")
    assert (box["data-total"], box["data-attempt"]) == ("1200", "1")


def test_a_line_is_marked_and_has_an_address(long: Log) -> None:
    page = long.pages.page(f"{long.path}?line=600")
    assert page.one(class_="chosen")["id"] == "L600"
    link = page.one(id="L600").one("a", class_="log-number")["href"]
    assert link == f"{long.path}?attempt=1&line=600"


def test_colours_are_classes_and_everything_else_is_text(log: Log) -> None:
    log.write("\x1b[1;31m<b>bad</b>\x1b[0m\x1b]0;title\x07 ok\u202e\u200b\n 1%\r 99%\r100%\n")
    answer = told(log)
    assert answer["lines"][0]["parts"] == [
        ["<b>bad</b>", "t-red t-bold"],
        [" ok\\u202e\\u200b", ""],
    ]
    assert texts(answer)[1] == "100%"
    raw = log.pages.get(log.path).text
    assert "&lt;b&gt;bad&lt;/b&gt;" in raw
    assert "<b>bad" not in raw


def test_a_long_line_is_cut_and_read_part_by_part(log: Log) -> None:
    long = "é" * 100_000
    log.write(f"first\n{long}\nlast\n")
    line = told(log)["lines"][1]
    assert line["size_bytes"] == 200_000
    assert len(line["parts"][0][0]) == LONGEST
    page = log.pages.page(log.path)
    href = page.one(id="L2").one("a", class_="log-whole")["href"]
    assert href == f"{log.path}/lines/2?attempt=1"
    found, at = "", href
    while at:
        part = log.pages.page(at)
        found += part.one("pre").text
        following = part.all("a", rel="next")
        at = following[0]["href"] if following else ""
    assert found == long
    assert log.pages.json(href)["size_bytes"] == 200_000
    log.pages.get(f"{log.path}/lines/99", status=404)
    log.pages.get(f"{log.path}/lines/2?at=999999", status=404)


def test_of_a_long_progress_bar_the_last_state_is_shown(log: Log) -> None:
    log.write("".join(f"\r{n:6} of 9999 " for n in range(10_000)) + "\r\n")
    assert texts(told(log)) == ["  9999 of 9999 "]


def test_a_wild_line_has_few_parts(log: Log) -> None:
    log.write("\x1b[31ma\x1b[32mb" * 400 + "\n")
    (line,) = told(log)["lines"]
    assert len(line["parts"]) == MOST_PARTS
    assert texts(told(log)) == ["ab" * 400]


def test_a_page_of_wild_lines_has_few_elements(log: Log) -> None:
    log.write(("\x1b[31ma\x1b[32mb" * 20 + "\n") * 500)
    page = log.pages.page(log.path)
    assert len(list(page.walk())) < 5_000
    assert page.all(class_="log-row")[-1].one(class_="log-text").text == "ab" * 20


def test_words_are_searched_on_the_server(long: Log) -> None:
    found = told(long, "?find=LINE%2077&go=next")["found"]
    assert found == {"line": 77, "reached": 77, "is_over": False}
    assert told(long, "?find=line%2077&go=next&line=77")["found"]["line"] == 770
    assert told(long, "?find=line%2077&go=previous&line=77")["found"]["line"] is None
    assert told(long, "?find=line%2077&go=previous")["found"]["line"] == 779
    assert told(long, "?find=LINE&go=next&case=1")["found"] == {
        "line": None,
        "reached": 1200,
        "is_over": True,
    }
    page = long.pages.page(f"{long.path}?find=line%20640&go=next")
    assert page.one(class_="chosen")["id"] == "L640"
    assert page.one("input", name="find")["value"] == "line 640"
    assert page.one("input", name="line")["value"] == "640"
    none = long.pages.page(f"{long.path}?find=nowhere&go=next")
    assert none.one(class_="log-said").text == "Not in this log."


def test_another_attempt_has_another_log(log: Log) -> None:
    log.write("the first try\n")
    log.pages.api.finish(log.run, "here")
    page = log.pages.page(f"{log.path}?attempt=1")
    assert page.one(class_="log-row").one(class_="log-text").text == "the first try"
    assert not page.one("section", class_="log").has("data-stream")
    assert told(log)["is_over"]
    assert told(log)["is_done"]
    log.pages.get(f"{log.path}?attempt=2", status=404)


def test_the_raw_log_is_saved(log: Log) -> None:
    log.write("\x1b[31mred\x1b[0m\r\n")
    answer = log.pages.get(f"{log.path}/raw?attempt=1")
    assert answer.content == b"\x1b[31mred\x1b[0m\r\n"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''here-1.log"
    log.pages.get(f"/runs/{log.run}/cells/there/log/raw", status=404)


@pytest.mark.parametrize("path", ["/runs/nope/cells/here/log", "/runs/{run}/cells/nope/log"])
def test_what_is_not_there_is_not_found(log: Log, path: str) -> None:
    log.pages.get(path.format(run=log.run), status=404)


def test_who_is_not_signed_in_reads_no_log(long: Log) -> None:
    nobody = long.pages.as_viewer(None)
    nobody.get(long.path, status=303)
    nobody.get(f"{long.path}.json", status=401)


def test_lines_cost_few_statements(long: Log) -> None:
    told(long)
    with long.pages.counted() as statements:
        told(long, "?from=600&count=200")
    assert len([it for it in statements if it.startswith("SELECT")]) <= 9


def test_jobs_have_their_lines_and_the_first_failure_a_link(log: Log) -> None:
    log.write("$ venv\n===== seatrial: unit (suite) =====\nwell\n")
    log.write("===== seatrial: demo (demo) =====\nTraceback (most recent call last):\nno\n")
    assert told(log)["sections"] == [
        {"job": "unit", "first": 2, "last": 3},
        {"job": "demo", "first": 4, "last": 6},
    ]
    running = log.pages.page(log.path).one("nav", class_="log-jobs")
    assert [one["data-line"] for one in running.all("a")] == ["2", "4"]
    agent = log.agent
    agent.send(
        agent.line("phase", "unit", name="started"),
        agent.manifest("t/a.py::n"),
        agent.test("t/a.py::n"),
        agent.line("phase", "unit", name="finished", exit_code=0),
        agent.line("phase", "demo", name="started"),
        agent.line("phase", "demo", name="finished", exit_code=1),
    )
    jobs = log.pages.page(log.path).one("nav", class_="log-jobs")
    assert [one.text for one in jobs.all("a")] == [
        "✓ passed unit",
        "✗ failed demo",
        "First failure",
    ]
    failure = jobs.all("a")[-1]["href"]
    chosen = log.pages.page(failure).one(class_="chosen")
    assert "Traceback (most recent call last):" in chosen.text
