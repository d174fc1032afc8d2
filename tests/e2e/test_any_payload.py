"""Any payload: a folder with a pytest suite and a ten-line payload.toml, whatever it does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.home import a_home
from tests.e2e.payloads import matrix

PAYLOADS = Path(__file__).resolve().parents[1] / "payloads"

# name: (outcome, reason of the job, counts that are not zero)
EXPECTED = {
    "artifacts": ("passed", "", {"passed": 1}),
    "collection_error": ("failed", "tests", {"error": 1, "missing": 1}),
    "demo_fails": ("failed", "checks", {}),
    "demo_lies": ("failed", "checks", {}),
    "erroring": ("failed", "tests", {"passed": 1, "failed": 1, "error": 2}),
    "hang": ("failed", "tests", {"passed": 2, "error": 1}),
    "no_tests": ("failed", "no_tests", {}),
    "sigkill": ("failed", "tests", {"passed": 7, "error": 1}),
    "skipped": ("passed", "", {"passed": 1, "skipped": 4}),
    "xfail": ("failed", "tests", {"passed": 1, "failed": 1, "xfailed": 1, "xpassed": 1}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with a_home(tmp_path_factory.mktemp("any") / "home") as home:
        yield home


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_payload_is_judged_as_it_behaves(home, tmp_path, name):
    outcome, reason, counts = EXPECTED[name]
    file = matrix(tmp_path / "m.yaml", PAYLOADS / name)
    status = 0 if outcome == "passed" else 1
    run = json.loads(home.seatrial("run", str(file), "--json", status=status))
    [cell] = run["cells"]
    assert cell["outcome"] == outcome
    assert [job["reason"] for job in cell["jobs"]] == [reason]
    assert {k: v for k, v in cell["counts"].items() if v} == counts
    summary = home.path / "runs" / run["id"] / "report" / "here" / "SUMMARY.md"
    assert outcome.upper()[:4] in summary.read_text("utf-8")


def test_an_existing_project_runs_after_init(home, tmp_path):
    """`seatrial init` in a project with a src layout, then one run."""
    project = tmp_path / "widget"
    (project / "src" / "widget").mkdir(parents=True)
    (project / "tests").mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "widget"\nversion = "1.2"\n'
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    )
    (project / "src/widget/__init__.py").write_text("def double(x):\n    return 2 * x\n")
    (project / "tests/test_widget.py").write_text(
        "from widget import double\n\ndef test_double():\n    assert double(4) == 8\n"
    )
    init = home.command("init")
    subprocess.run(init, cwd=project, env=home.environment, check=True, capture_output=True)
    again = subprocess.run(init, cwd=project, env=home.environment, capture_output=True)
    assert again.returncode == 2, "it never overwrites"
    assert len((project / "payload.toml").read_text().splitlines()) <= 20
    run = json.loads(home.seatrial("run", str(project / "seatrial.yaml"), "--json"))
    assert run["cells"][0]["counts"]["passed"] == 1
    shutil.rmtree(project)
