"""A nightly on this computer, twice: what is proven is not run, and every change is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.home import Home, a_home
from tests.e2e.payloads import matrix

PAYLOADS = Path(__file__).resolve().parents[1] / "payloads"


@pytest.fixture
def home(tmp_path):
    with a_home(tmp_path / "home") as home:
        yield home


def night(home: Home, file: Path, *options: str) -> dict:
    found: dict = json.loads(home.seatrial("run", str(file), "--json", *options))
    return found


def test_an_unchanged_payload_is_run_once_and_a_changed_byte_again(home, tmp_path):
    folder = tmp_path / "payload"
    shutil.copytree(PAYLOADS / "skipped", folder)
    file = matrix(tmp_path / "m.yaml", folder)
    first, second = night(home, file, "--reuse", "36"), night(home, file, "--reuse", "36")
    [ran], [reused] = first["cells"], second["cells"]
    assert (reused["outcome"], reused["reason"]) == ("passed", "reused")
    assert [job["reused_from"] for job in reused["jobs"]] == [first["id"]]
    assert reused["jobs"][0]["at"] == ran["jobs"][0]["at"]
    assert "nothing it depends on has changed" in reused["jobs"][0]["reuse"]
    assert second["counts"] == first["counts"]
    states = [step["to_state"] for step in reused["transitions"]]
    assert states == ["placing", "booting", "preparing", "releasing", "done"]
    tests = [home.get(f"/runs/{run['id']}/cells/here/tests")["items"] for run in (first, second)]
    assert tests[0] == tests[1] != []
    summary = home.seatrial("report", second["id"], "--kind", "summary")
    assert "(reused)" in summary
    assert first["id"] in summary

    with next(folder.glob("test_*.py")).open("a") as source:
        source.write("\n")
    third = night(home, file, "--reuse", "36")
    [job] = third["cells"][0]["jobs"]
    assert job["reused_from"] == ""
    assert job["reuse"].startswith("payload changed: ")
    assert night(home, file)["cells"][0]["jobs"][0]["reuse"] == ""
