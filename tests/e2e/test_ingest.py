"""Ingest as a person does it: the command line, a real controller, and one that is killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from orchestrator.adapters.result_parsers.pytest_text import PytestText
from tests.e2e.home import a_home, eventually

LOGS = Path(__file__).parents[1] / "golden" / "logs" / "gcp_l4_v046"
PLATFORMS = Path(__file__).parents[1] / "golden" / "transcribed" / "002_summary"
ORDER = ("--platform", "gcp-l4", "--subject", "torchbridge@0.4.6")
SUITES = {"nvidia-backend": 66, "moe": 48, "fp8-native": 51, "fp8-training": 20}
DEMOS = {"flex-attention-demo": 9, "fp8-demo": 8, "moe-demo": 8}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with a_home(tmp_path_factory.mktemp("ingest") / "home") as home:
        yield home


@pytest.fixture(scope="module")
def handed_in(home):
    """The logs of a machine, handed in for the first time: the run, and what was said."""
    return ingest(home, LOGS, *ORDER)


def ingest(home, source: Path, *words: str) -> tuple[str, str]:
    """(what it prints, what it says beside that)."""
    done = subprocess.run(
        home.command("ingest", str(source), *words),
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_folder_of_logs_becomes_a_finished_run_and_its_reports(home, handed_in):
    run, said = handed_in
    assert f"fp8_tests.txt: pytest-text {PytestText.version} (" in said
    assert "71 tests, for fp8-native, fp8-training" in said
    assert "says KernelPyTorch v0.4.5, the subject is 0.4.6" in said
    assert f"cell gcp-l4 of run {run}: passed" in said

    shown = home.json("show", run)
    assert (shown["state"], shown["outcome"]) == ("finished", "passed")
    [cell] = shown["cells"]
    jobs = {job["id"]: job for job in cell["jobs"]}
    assert {name: jobs[name]["counts"]["passed"] for name in SUITES} == SUITES
    assert {name: len(jobs[name]["checks"]) for name in DEMOS} == DEMOS
    assert jobs["flex-attention-demo"]["degraded"]
    throughput = {
        metric["samples"][0]
        for metric in jobs["moe-benchmark"]["metrics"]
        if metric["unit"] == "tokens/s"
    }
    assert throughput == {525_700.0, 311_000.0}
    assert len(cell["ingested"]["sources"]) == 7

    summary = home.seatrial("report", run)
    assert "185/185" in summary
    page = home.seatrial("report", run, "--cell", "gcp-l4")
    assert "FlexAttention" in page
    assert "KernelPyTorch v0.4.4" in page or "KernelPyTorch 0.4.4" in page
    published = home.path / "runs" / run / "report" / "gcp-l4"
    for log in LOGS.iterdir():
        assert (published / log.name).read_bytes() == log.read_bytes()
    assert "ingested, parsed-text" in home.seatrial("show", run)


def test_several_folders_are_a_cell_each_of_one_run_in_their_order(home):
    names = ["local", "gcp-l4", "aws-a10g", "gcp-tpu-v5e", "aws-mi300x"]
    folders = [str(PLATFORMS / name) for name in names]
    run, _ = ingest(home, PLATFORMS / names[0], *folders[1:])
    shown = home.json("show", run)
    assert [cell["id"] for cell in shown["cells"]] == names
    assert shown["outcome"] == "failed"
    assert "| **1,492/1,504** |" in home.seatrial("report", run)
    runs = len(home.json("runs"))
    assert ingest(home, PLATFORMS / names[0], *folders[1:])[0] == run
    assert len(home.json("runs")) == runs


def test_the_same_again_is_the_same_run_however_it_is_packed(home, handed_in, tmp_path):
    run, _ = handed_in
    runs = len(home.json("runs"))
    again, said = ingest(home, LOGS, *ORDER)
    assert again == run
    assert "was handed in before" in said

    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(LOGS, arcname="gcp_l4_v046")
    assert ingest(home, archive, *ORDER)[0] == run
    zipped = tmp_path / "logs.zip"
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as packed:
        for log in sorted(LOGS.iterdir()):
            packed.write(log, log.name)
    assert ingest(home, zipped, *ORDER)[0] == run
    assert len(home.json("runs")) == runs


def test_curl_hands_an_archive_in(home, tmp_path):
    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(LOGS, arcname=".")
    home.start_controller()
    url = "http://localhost/api/v1/ingest?platform=by-curl&subject=torchbridge@0.4.6"
    socket = str(home.path / "controller.sock")
    words = ["curl", "-sS", "--fail-with-body", "--unix-socket", socket, "-X", "POST"]
    answer = subprocess.check_output([*words, "-T", str(archive), url], text=True)
    assert json.loads(answer)["outcome"] == "passed"


def test_refusals_are_sentences_and_store_nothing(home, tmp_path):
    runs = home.json("runs")
    empty = tmp_path / "empty"
    empty.mkdir()
    home.seatrial("ingest", str(empty), *ORDER, status=2)
    home.seatrial("ingest", str(tmp_path / "nowhere"), *ORDER, status=2)
    (empty / "link").symlink_to(LOGS / "moe_tests.txt")
    home.seatrial("ingest", str(empty), *ORDER, status=2)
    (empty / "link").unlink()
    (empty / "blob.bin").write_bytes(os.urandom(1000))
    home.seatrial("ingest", str(empty), *ORDER, status=2)
    assert home.json("runs") == runs


def test_a_controller_that_is_killed_ends_the_ingestion_when_it_is_back(tmp_path):
    """However far it came: either nothing is stored, or it ends by itself, once."""
    with a_home(tmp_path / "home") as home:
        killed_while_it_ingests(home, tmp_path)


def killed_while_it_ingests(home, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    module = "tests/test_many.py"
    names = [f"{module}::test_case_{number:05}" for number in range(40_000)]
    lines = [f"{name} PASSED [100%]" for name in names]
    head = "============================= test session starts ====\ncollected 40000 items\n\n"
    foot = "\n\n============================= 40000 passed in 61.00s (0:01:01) ====\n"
    (folder / "many.txt").write_text(head + "\n".join(lines) + foot)
    home.start_controller()
    going = subprocess.Popen(
        home.command("ingest", str(folder), *ORDER),
        env=home.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: home.get("/runs")["items"])
        home.kill_controller()
    finally:
        going.kill()
        going.wait(120)
    [run] = home.json("runs")
    home.start_controller()
    eventually(lambda: home.get(f"/runs/{run['id']}")["state"] == "finished")
    shown = home.json("show", run["id"])
    assert (shown["outcome"], shown["counts"]["passed"]) == ("passed", 40_000)
    assert list((home.path / "tmp").iterdir()) == []
    assert ingest(home, folder, *ORDER)[0] == run["id"]


def test_notes_beside_the_logs_say_the_rest(home, tmp_path):
    folder = tmp_path / "logs"
    shutil.copytree(LOGS, folder)
    (folder / "ingest.yaml").write_text(
        "apiVersion: seatrial/v1\nkind: Ingest\nplatform: gcp-l4\n"
        'subject: {name: torchbridge, version: "0.4.6"}\ndate: 2026-01-19\n'
        'suites: [{id: moe-tests, title: MoE Tests, match: "tests/test_moe.py"}]\n'
        'machine: {place: us-west1-a, seconds: 300, usd_per_hour: "0.7068", priced: a bill}\n'
        "annotations: [{kind: conclusion, text: Ship it., author: R. Eader}]\n"
    )
    run, _ = ingest(home, folder)
    [cell] = home.json("show", run)["cells"]
    assert cell["jobs"][0]["id"] == "moe-tests"
    assert cell["ingested"]["dated_at"] == "2026-01-19T00:00:00Z"
    assert cell["cost_usd"] == "0.0589"
    assert "2026-01-19" in home.seatrial("report", run, "--cell", "gcp-l4")


def test_what_a_person_writes_later_stands_in_the_published_reports(home, handed_in, tmp_path):
    run, _ = handed_in
    notes = tmp_path / "notes.yaml"
    notes.write_text(
        "apiVersion: seatrial/v1\nkind: Annotations\nauthor: R. Eader\nannotations:\n"
        "  - {kind: fix, title: The mask moved, files: [a.py], cell: gcp-l4, at: 2026-01-18}\n"
        "  - {kind: conclusion, text: All 186 tests pass.}\n"
    )
    words = home.command("annotate", run, str(notes))
    for _ in range(2):
        done = subprocess.run(words, env=home.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "conclusion 'All 186 tests pass.': CONTRADICTED: " in done.stderr
    report = home.path / "runs" / run / "report"
    assert (report / "gcp-l4" / "SUMMARY.md").read_text().count("The mask moved") == 1
    assert "All 186 tests pass." in (report / "SUMMARY.md").read_text()
    words = ("--kind", "note", "--text", "It rained.", "--author", "W. Riter", "--cell", "gcp-l4")
    home.seatrial("annotate", run, *words)
    assert "It rained." in (report / "gcp-l4" / "SUMMARY.md").read_text()
    kept = home.get(f"/runs/{run}/annotations")["items"]
    assert [one["author"] for one in kept] == ["R. Eader", "R. Eader", "W. Riter"]
