"""Every ``--json`` against its committed schema: the commands with a real application and database.

The controller runs no cells, so a launch waits until it is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from benchmarks.dashboard.fill import Filled, fill
from benchmarks.dashboard.people import NIGHTLY
from benchmarks.dashboard.plans import PRODUCT
from benchmarks.dashboard.sizes import SIZES
from orchestrator.adapters.files.home_folder import prepare_home
from orchestrator.application.sign_off import NewWaiver, request_waiver
from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.bootstrap.controller_wiring import Parts, build
from orchestrator.cli.app import main, whole
from orchestrator.config import Settings
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Cause
from orchestrator.domain.outcome import Outcome
from tests import cli_answers
from tests.integration.test_reads_without_controller import controller
from tests.integration.webhook_receiver import Receiver
from tests.unit.cli.in_process import MATRIX, PAYLOAD

ELSEWHERE = {
    "seatrial gate bisect": "tests/integration/test_cli_bisect.py",
    "seatrial machines": "tests/integration/test_cli_machines.py",
    "seatrial machines --terminate": "tests/integration/test_cli_machines.py",
    "seatrial machines --terminate --all": "tests/integration/test_cli_emergency_stop.py",
    "seatrial cost --refresh": "tests/integration/test_cli_machines.py",
    "seatrial doctor CLOUD": "tests/integration/test_account_aws.py",
    "seatrial restore": "tests/e2e/test_backup.py",
    "seatrial gate verify": "tests/integration/test_cli_verify.py",
}
"""Answers that need a cloud or another process, by the file that checks them."""
CHANGES = {
    "run": "launch",
    "rerun": "rerun",
    "ingest": "ingest",
    "annotate": "create_annotations",
    "cancel": "cancel",
    "gate check": "evaluate",
    "gate waive": "create_waiver",
    "gate approve": "create_approval",
    "gate review": "create_payload_review",
    "gate keys rotate": "rotate_keys",
    "gate keys retire": "retire_signing_key",
    "known-issue add": "create_known_issue",
    "known-issue expire": "expire_known_issue",
    "quarantine add": "create_quarantine",
    "quarantine end": "end_one_quarantine",
    "alias suggest": "match_tests",
    "channel add": "create_channel",
    "channel test": "send_test",
    "channel rotate": "rotate_channel_secret",
    "channel remove": "remove_channel",
    "schedule add": "add_schedule",
    "schedule pause": "pause_schedule",
    "schedule resume": "resume_schedule",
    "schedule trigger": "trigger_schedule",
    "schedule remove": "remove_schedule",
    "token create": "create_token",
    "token revoke": "revoke_token",
    "db prune": "prune_now",
}
"""The operation that the audit log has for a command."""
BY_REST = {"alias confirm", "alias reject", "alias undo", "gate bisect", "machines", "cost"}
BY_REST |= {"session revoke"}
"""Commands that need another world; their operations have entries as all others of REST."""
UNCHANGING = {"plan", "watch", "runs", "show", "failures", "slowest", "logs", "report", "export"}
UNCHANGING |= {"compare", "lint", "ssh", "doctor", "gate dry-run", "gate explain", "gate history"}
UNCHANGING |= {"gate list", "gate verify", "gate waivers", "gate reviews", "gate keys list"}
UNCHANGING |= {"gate keys export", "known-issue list", "quarantine list", "quarantine suggest"}
UNCHANGING |= {"alias list", "channel list", "channel log", "schedule list", "schedule show"}
UNCHANGING |= {"audit list", "audit export", "audit verify", "token list", "session list"}
UNCHANGING |= {"db check", "schema matrix", "schema payload", "schema policy", "backup"}
ON_THIS_COMPUTER = {"init", "bootstrap", "serve", "controller", "db upgrade", "restore"}
ON_THIS_COMPUTER |= {"payload", "stop"}
"""These change nothing over REST; `restore` writes an entry of its own."""
ROOT = Path(__file__).parents[2]
JUNIT = """\
<testsuite tests="1"><testcase classname="tests.test_a" name="test_b" time="0.5"/></testsuite>
"""


INGEST = """\
apiVersion: seatrial/v1
kind: Ingest
platform: {{id: host-{}, provider: elsewhere}}
subject: {{name: hull, version: "1.0"}}
"""


class Told:
    """Runs commands, and holds what they print against the schema."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture
        self.checked: set[str] = set()
        self.said = ""
        """What the last command said beside its answer."""

    def __call__(self, answer: str, *words: str, codes: tuple[int, ...] = (0,)) -> Any:
        name = f"seatrial {answer}".strip()
        code = main(CommandWiring(), [*words, "--json"])
        said = self.capture.readouterr()
        assert code in codes, said.err
        cli_answers.check(name, said.out)
        self.checked.add(name)
        self.said = said.err
        return json.loads(said.out)


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Told:
    for name in ("SEATRIAL_URL", "SEATRIAL_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEATRIAL_HOME", str(tmp_path / "home"))
    (tmp_path / "release.yaml").write_text(MATRIX)
    (tmp_path / "pay" / "tests").mkdir(parents=True)
    (tmp_path / "pay" / "payload.toml").write_text(PAYLOAD)
    (tmp_path / "pay" / "tests" / "test_a.py").write_text("def test_a():\n    pass\n")
    for number in (1, 2):
        folder = tmp_path / f"results-{number}"
        folder.mkdir()
        (folder / "junit.xml").write_text(JUNIT)
        (folder / "ingest.yaml").write_text(INGEST.format(number))
    failed = '<testcase classname="tests.test_a" name="test_b"><failure/></testcase>'
    (tmp_path / "results-2" / "other.xml").write_text(f"<testsuite>{failed}</testsuite>\n")
    (tmp_path / "report.md").write_text("# Report\n\n10 of 12 passed (90 %).\n")
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    blocking = "{id: aws-l4, provider: local}\n  - {id: aws-graviton, provider: local}"
    nights = MATRIX.replace("{id: local-cpu, provider: local}", blocking)
    (tmp_path / "nights.yaml").write_text(nights)
    monkeypatch.chdir(tmp_path)
    return Told(capsys)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    prepare_home(tmp_path / "home")
    made = build(Settings(home=tmp_path / "home"), runs_cells=False)
    yield made
    made.database.close()


@pytest.fixture
def filled(parts: Parts) -> Filled:
    return fill(parts, SIZES["small"], now=datetime.now(UTC))


def test_every_answer_is_the_schemas(
    told: Told, parts: Parts, filled: Filled, tmp_path: Path, hook: Receiver
) -> None:
    with controller(parts, tmp_path / "home"):
        _reads(told, filled)
        _launches(told, parts)
        _gates(told, parts, filled)
        _exceptions(told, filled)
        _people(told, hook)
        assert told("db prune", "db", "prune")["dry_run"]
        assert not told("db prune", "db", "prune", "--yes")["dry_run"]
        token = told("token list", "token", "list")[-1]["id"]
        for words in ("channel remove ops", "schedule remove dawn", f"token revoke {token}"):
            assert main(CommandWiring(), words.split()) == 0
        told.capture.readouterr()
        entries = told("audit list", "audit", "list", "--limit", "1000")
    assert {one["operation"] for one in entries} >= set(CHANGES.values())
    assert {one["agent"] for one in entries} == {f"seatrial/{orchestrator.__version__}"}
    assert told.checked | ELSEWHERE.keys() == cli_answers.answers()


def _reads(told: Told, filled: Filled) -> None:
    *_, base, run = filled.runs
    told("doctor", "doctor", codes=(0, 1))
    assert told("runs", "runs")
    assert told("show", "show", run)["cells"]
    assert any(told("failures", "failures", one) for one in filled.runs)
    assert told("slowest", "slowest", run)
    assert told("compare", "compare", base, run)["pairs"]
    told("watch", "watch", run, codes=(0, 1, 5))
    told("cost", "cost")
    assert told("cost RUN", "cost", run)["bill"]
    assert told("cost --prices", "cost", "--prices")
    told("lint", "lint", "report.md")
    words = ("--kind", "note", "--title", "A note", "--text", "Noted.", "--author", "Ann")
    assert told("annotate", "annotate", run, *words)


def _launches(told: Told, parts: Parts) -> None:
    assert told("plan", "plan", "release.yaml")["cells"]
    run = told("run", "run", "release.yaml", "--detach", "-y", codes=(130,))["id"]
    told("cancel", "cancel", run)
    stores, now = parts.database.stores, datetime.now(UTC)
    for cell in stores.cells.of_run(run):
        stores.cells.conclude(cell.id, Cause(Outcome.CANCELLED, ""), at=now)
    assert stores.runs.finish(run, Outcome.CANCELLED, at=now)
    told("rerun", "rerun", run, "--detach", "-y", codes=(130,))
    ended = told("ingest", "ingest", "results-1")["run"]
    told("ingest DIR DIR", "ingest", "results-1", "results-2")
    assert "1 test in more than one file, 1 of them differently: the worst counts" in told.said
    assert "tests/test_a.py::test_b: passed in junit.xml, failed in other.xml" in told.said
    told("alias suggest", "alias", "suggest", ended, ended)
    told("alias list", "alias", "list")


def _gates(told: Told, parts: Parts, filled: Filled) -> None:
    verdict = filled.left.verdicts[-1]
    gate = told("gate explain", "gate", "explain", verdict)["gate"]
    told("gate explain --replay", "gate", "explain", verdict, "--replay")
    check = ("gate", "check", "nightly.yaml", "--no-wait")
    told("gate check", *check, "--run", filled.runs[-1], codes=(0, 1, 5, 10))
    dry = ("gate", "dry-run", "nightly.yaml")
    told("gate dry-run", *dry, "--run", filled.runs[-1], codes=(0, 1, 5))
    assert told("gate history", "gate", "history", gate)
    assert told("gate history --policies", "gate", "history", gate, "--policies")
    assert told("gate list", "gate", "list")
    assert told("gate waivers", "gate", "waivers")
    rules = told("gate explain", "gate", "explain", verdict)["rules"]
    red = next(rule["id"] for rule in rules if rule["blocking"] and rule["outcome"] == "violated")
    words = ("gate", "waive", gate, red, "--reason", "known", "--days", "3")
    told("gate waive", *words)
    new = NewWaiver(gate=gate, rule=red, reason="known", days=3)
    theirs = request_waiver(parts.context, new, author=Person("Ann", "of her own"))
    told("gate approve --waiver", "gate", "approve", gate, "--waiver", theirs.waiver.id)
    told("gate approve", "gate", "approve", gate, codes=(1,))
    words = ("gate", "review", filled.payload, "--level", "reviewed", "--days", "9")
    told("gate review", *words, "--note", "read")
    assert told("gate reviews", "gate", "reviews")
    key = told("gate keys rotate", "gate", "keys", "rotate")["id"]
    assert told("gate keys list", "gate", "keys", "list")
    told("gate keys retire", "gate", "keys", "retire", key)


def _exceptions(told: Told, filled: Filled) -> None:
    of = ("--product", PRODUCT)
    day = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%d}"
    words = ("known-issue", "add", "It hangs", *of, "--owner", "ann", "--expires", day)
    issue = told("known-issue add", *words, "--exception", "TimeoutError", "--max-failures", "2")
    assert told("known-issue list", "known-issue", "list")
    told("known-issue expire", "known-issue", "expire", issue["id"])
    words = ("quarantine", "add", filled.flaky[-1][1], *of, "--reason", "flaky", "--owner", "ann")
    quarantine = told("quarantine add", *words, "--days", "3")
    assert told("quarantine list", "quarantine", "list")
    told("quarantine end", "quarantine", "end", quarantine["id"])
    told("quarantine suggest", "quarantine", "suggest", *of)


def _people(told: Told, hook: Receiver) -> None:
    told("channel add", "channel", "add", "ops", hook.url, "--allow-private")
    assert told("channel list", "channel", "list")
    told("channel test", "channel", "test", "ops")
    assert told("channel log", "channel", "log", "ops")
    told("channel rotate", "channel", "rotate", "ops")
    words = (
        "schedule",
        "add",
        "dawn",
        "--cron",
        "0 5 * * *",
        "--tz",
        "UTC",
        "--matrix",
        "nights.yaml",
    )
    told("schedule add", *words, "--gate", "nightly")
    told("schedule list", "schedule", "list")
    told("schedule show", "schedule", "show", "dawn")
    told("schedule pause", "schedule", "pause", "dawn")
    told("schedule resume", "schedule", "resume", "dawn")
    told("schedule trigger", "schedule", "trigger", "dawn")
    told("token create", "token", "create", "ann")
    assert told("token list", "token", "list")
    told("session list", "session", "list")
    assert told("audit list", "audit", "list")
    told("backup", "backup", "one.tar.gz")
    told("audit verify", "audit", "verify")


def _commands(prefix: str, group: object) -> Iterator[tuple[str, Any]]:
    for name, command in getattr(group, "commands", {}).items():
        full = f"{prefix} {name}"
        yield from _commands(full, command) if hasattr(command, "commands") else [(full, command)]


def test_every_command_is_known_to_change_something_or_not() -> None:
    known = [*CHANGES, *BY_REST, *UNCHANGING, *ON_THIS_COMPUTER]
    assert len(known) == len(set(known))
    assert {f"seatrial {name}" for name in known} == {
        name for name, _ in _commands("seatrial", whole())
    }


def test_every_command_with_json_has_an_answer() -> None:
    named = {
        name
        for name, command in _commands("seatrial", whole())
        if any("--json" in param.opts for param in command.params)
    }
    assert named == {name for name in cli_answers.answers() if name in named}
    assert named
    for answer in cli_answers.answers():
        assert any(answer.startswith(name) for name in named), answer


@pytest.mark.parametrize("answer", sorted(ELSEWHERE))
def test_what_is_checked_elsewhere_is(answer: str) -> None:
    assert f'check("{answer}"' in (ROOT / ELSEWHERE[answer]).read_text(encoding="utf-8")
