"""Who broke it, on a terminal, and what the controller tells meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from orchestrator.cli.view.failures import SHOWN, blamed
from orchestrator.cli.view.live_run import LogTail, picture
from orchestrator.cli.watching.live_display import LiveDisplay, PlainDisplay
from orchestrator.cli.watching.poll_threads import RunNotice, StreamedEvent, WatchedRun, notice_of
from orchestrator.client.transport import Answer, read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

EVIL = "\x1b[31mred\x1b]0;title\x07\nnew\u202eline"


def diagnosed(**given: Any) -> runs.Json:
    plain = {
        "cell": "gcp-l4",
        "job": "moe",
        "nodeid": "test_moe.py::test_routing",
        "answer": "image_or_driver",
        "sentence": "Since the last green run r1: device driver 550 -> 570.",
        "evidence": ["a", "b"],
        "again": [
            {"kind": "rerun", "changed": "", "whole": False, "outcomes": ["failed"] * 4},
            {
                "kind": "baseline",
                "changed": "torchbridge 0.4.5",
                "whole": False,
                "outcomes": ["failed"] * 4,
            },
        ],
    }
    return plain | given


def text(*found: runs.Json, run: runs.Json | None = None) -> str:
    console = Console(width=120, file=None, force_terminal=False)
    told = blamed(read(RunResponse, (run or runs.typical()) | {"diagnosed": list(found)}))
    with console.capture() as captured:
        if told is not None:
            console.print(told)
    return captured.get()


def test_each_test_has_its_answer_what_was_tried_and_why() -> None:
    lines = [line.strip() for line in text(diagnosed()).splitlines()]
    assert lines[1] == "root cause"
    assert lines[2].split() == ["image", "or", "driver", "moe::test_moe.py::test_routing", "gcp-l4"]
    assert lines[3].startswith("failed 4 of 4 again; failed 4 of 4 with the baseline")
    assert lines[4] == "Since the last green run r1: device driver 550 -> 570."


def test_a_command_is_named_by_its_job_and_one_cell_is_not_named() -> None:
    one = runs.run(runs.cell("gcp-l4", "done", outcome="failed"))
    told = text(diagnosed(nodeid="", job="demo"), run=one)
    assert "image or driver  demo\n" in "\n".join(map(str.rstrip, told.splitlines())) + "\n"


def test_nothing_is_printed_where_nothing_ran_again() -> None:
    assert text() == ""


def test_many_tests_are_cut_and_the_cut_is_said() -> None:
    assert "and 3 more tests; --json has them all" in text(*[diagnosed()] * (SHOWN + 3))


def test_what_a_machine_said_stays_text() -> None:
    again = [{"kind": "baseline", "changed": EVIL, "whole": False, "outcomes": [EVIL]}]
    told = text(diagnosed(nodeid=EVIL, sentence=EVIL, again=again, cell=EVIL))
    assert not {"\x1b", "\x07", "\u202e"} & set(told)


@pytest.mark.parametrize(
    ("kind", "data", "found"),
    [
        ("cell", {"cell": "here", "notice": "told"}, RunNotice("here", "told")),
        ("report", {"notice": "not published: disk"}, RunNotice("report", "not published: disk")),
        ("cell", {"cell": "here"}, None),
        ("cell", {"cell": "here", "notice": ""}, None),
        ("cell", {"cell": "here", "notice": 7}, None),
        ("cell", {"cell": "here", "notice": "kept", "shown": "kept_until"}, None),
        ("cell", [1], None),
    ],
)
def test_a_notice_is_what_an_event_says_in_words(kind: str, data: Any, found: RunNotice) -> None:
    assert notice_of(StreamedEvent("1", kind, json.dumps(data))) == found


def test_what_is_no_json_is_no_notice() -> None:
    assert notice_of(StreamedEvent("1", "cell", "{")) is None


def watched(*notices: RunNotice, state: str = "diagnosing") -> WatchedRun:
    shown = runs.run(runs.cell("here", state), runs.cell("there", "running"))
    return WatchedRun(Answer(shown, RunResponse), notices=notices)


FIRST = RunNotice("here", "diagnosing: 12 failing tests again, 4 times, with nothing changed")
SECOND = RunNotice("here", f"diagnosing: again, with baseline 0.4.5{EVIL}")


def test_each_notice_is_one_plain_line_and_told_once() -> None:
    said: list[str] = []
    display = PlainDisplay(said.append)
    for notices in ((FIRST,), (FIRST, SECOND), (FIRST, SECOND)):
        display.show(watched(*notices), runs.NOW, "")
    told = [line for line in said if "diagnosing: " in line]
    assert told[0] == f"  1m 40s  here: {FIRST.text}"
    assert told[1].startswith("  1m 40s  here: diagnosing: again, with baseline 0.4.5red")
    assert len(told) == 2
    assert not {"\x1b", "\n", "\u202e"} & set("".join(told))


def test_the_live_picture_has_the_last_notice_of_a_cell_under_way() -> None:
    def drawn(state: str) -> str:
        seen = watched(FIRST, SECOND, state=state)
        heard = {notice.about: notice.text for notice in seen.notices}
        image = picture(seen.run, LogTail(), now=runs.NOW, width=100, height=24, heard=heard)
        return image.plain

    told = drawn("diagnosing")
    assert "again, with baseline 0.4.5red" in told
    assert "12 failing tests" not in told
    assert not {"\x1b", "\u202e"} & set(told)
    assert "baseline" not in drawn("done")


def test_what_stays_after_the_live_picture_has_the_answers() -> None:
    console = Console(width=120, file=None, force_terminal=False)
    shown = runs.typical() | {"diagnosed": [diagnosed()]}
    with console.capture() as captured:
        LiveDisplay(console).finish(WatchedRun(Answer(shown, RunResponse)), runs.NOW)
    assert "root cause" in captured.get()
