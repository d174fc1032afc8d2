"""Any payload: folders with a pytest suite or a demo, whatever they do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.home import a_home
from tests.e2e.payloads import matrix

PAYLOADS = Path(__file__).resolve().parents[1] / "payloads"

MANIFEST = """\
schema = 1
name = "any"
version = "1.0"
[setup]
pip = ["pytest>=8"]
"""
SUITE = """\
[[job]]
id = "{name}"
kind = "suite"
pytest = ["{name}"]
"""
HANGS = "idle_timeout_minutes = 0.4\n"
DEMO = """\
[[job]]
id = "{name}"
kind = "demo"
command = ["{{python}}", "{name}/demo.py"]
"""
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


@pytest.fixture(scope="module")
def ran(home, tmp_path_factory):
    """One run with a job for each of them; the job's part of the answer, and the report."""
    folder = tmp_path_factory.mktemp("payload")
    manifest = [MANIFEST]
    for name in EXPECTED:
        shutil.copytree(PAYLOADS / name, folder / name)
        (folder / name / "payload.toml").unlink()
        is_demo = name.startswith("demo")
        manifest.append((DEMO if is_demo else SUITE).format(name=name))
        manifest.append(HANGS if name == "hang" else "")
    (folder / "payload.toml").write_text("".join(manifest))
    file = matrix(tmp_path_factory.mktemp("matrix") / "m.yaml", folder)
    run = json.loads(home.seatrial("run", str(file), "--json", status=1))
    [cell] = run["cells"]
    summary = home.path / "runs" / run["id"] / "report" / "here" / "SUMMARY.md"
    return {job["id"]: job for job in cell["jobs"]}, summary.read_text("utf-8")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_payload_is_judged_as_it_behaves(ran, name):
    jobs, summary = ran
    outcome, reason, counts = EXPECTED[name]
    assert (jobs[name]["outcome"], jobs[name]["reason"]) == (outcome, reason)
    found = jobs[name]["counts"]
    assert {k: v for k, v in found.items() if v} == counts
    if counts:
        row = "| {passed} | {failed} | {error} | {skipped} |".format(**found)
        assert f"| {name} {row}" in summary


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
