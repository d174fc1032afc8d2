"""The examples for CI systems: their shell, run against a real controller."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from tests.accounts import ACCOUNT, beside_account, needs_account
from tests.e2e.home import ROOT, TEMPORARY, eventually
from tests.integration.webhook_receiver import receiver
from tests.ssh_hosts import free_port

pytestmark = [pytest.mark.slow, needs_account]
EXAMPLES = ROOT / "docs" / "examples" / "ci"
ACTION = ROOT / ".github" / "actions" / "gate"
TOKEN = "seatrial_of_the_examples_0123456789"
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {{name: {name}, product: proof, owner: release-team}}
spec:
  platforms:
    - {{id: {platform}}}
  jobs:
    - {{id: unit, on: [{platform}]}}
"""
MANIFEST = """\
schema = 1
name = "proof"
version = "1"
[python]
candidates = ["python3"]
[setup]
pip = ["pytest>=8"]
[[job]]
id = "unit"
kind = "suite"
pytest = ["test_unit.py"]
"""
HOSTILE = "```</pre><script>|::set-output name=x::y\\n## heading"
SUITE = f"""
import pathlib
import pytest

@pytest.mark.parametrize("name", ["plain", {HOSTILE!r}])
def test_it(name):
    assert pathlib.Path(__file__).with_name("good").exists(), name
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: ci}}
subject: {{name: proof, version: "1"}}
payload: {{path: {payload}}}
platforms: [{{id: here, provider: local}}]
jobs: [{{select: "*"}}]
"""


@dataclass
class Ci:
    """A runner of a CI system: a folder, a `seatrial` on its PATH and a controller elsewhere."""

    folder: Path
    url: str

    def bash(
        self, *words: str, expect: int, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        given: Mapping[str, str] = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "CI": "true",
            "SEATRIAL_URL": self.url,
            "SEATRIAL_TOKEN": TOKEN,
            **TEMPORARY,
            **environment,
        }
        done = subprocess.run(
            ["bash", *words],
            cwd=self.folder, env=given, capture_output=True, text=True, timeout=240,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done

    def matrix(self, name: str, *, good: bool) -> str:
        payload = self.folder / f"payload-{name}"
        payload.mkdir()
        (payload / "payload.toml").write_text(MANIFEST)
        (payload / "test_unit.py").write_text(SUITE)
        if good:
            (payload / "good").touch()
        path = self.folder / f"{name}.yaml"
        path.write_text(MATRIX.format(payload=payload))
        return str(path)

    def policy(self, name: str, platform: str = "here") -> str:
        path = self.folder / "gates" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(POLICY.format(name=name, platform=platform))
        return str(path)

    def ask(self, path: str) -> object:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.get(f"{self.url}/api/v1{path}", headers=headers, timeout=120).json()

    def action(self, expect: int, **inputs: str) -> tuple[dict[str, str], str]:
        """Run the action's script; its outputs and its summary."""
        output, summary = self.folder / "output", self.folder / "summary"
        for file in (output, summary):
            file.unlink(missing_ok=True)
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        out = {"GATE_OUT": str(self.folder / "kept")}
        self.bash(str(ACTION / "gate.sh"), expect=expect, **files, **out, **inputs)
        said = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return said, summary.read_text()


@pytest.fixture(scope="module")
def ci(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ci]:
    folder = tmp_path_factory.mktemp("ci")
    (folder / "bin").mkdir()
    program = folder / "bin" / "seatrial"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m orchestrator "$@"\n'
    )
    program.chmod(0o755)
    (folder / "token").write_text(TOKEN)
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": str(ROOT),
        "SEATRIAL_HOME": str(folder / "home"),
        "SEATRIAL_ADMIN_TOKEN_FILE": str(folder / "token"),
    }
    serve = ("-m", "orchestrator", "serve", "--port", str(port), "--local-jobs-as", ACCOUNT)
    with (folder / "log").open("wb") as log:
        controller = subprocess.Popen(
            beside_account(folder / "beside", sys.executable, *serve),
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    made = Ci(folder, f"http://127.0.0.1:{port}")
    try:
        eventually(lambda: httpx.get(f"{made.url}/readyz").status_code == 200)
        yield made
    finally:
        controller.terminate()
        controller.wait(120)


@dataclass(frozen=True)
class Shell:
    """What the shell example did, with a good build of a release and a bad one after it."""

    good: str
    """What it printed."""
    bad: str
    told: list[Any]
    """The verified messages: of both, and then a test message."""


@pytest.fixture(scope="module")
def shell(ci: Ci) -> Shell:
    policy, script = ci.policy("shell"), str(EXAMPLES / "gate.sh")
    with receiver() as hook:
        words = ("--lineage", "shell", "--allow-private")
        added = ci.bash("-euc", f"seatrial channel add room {hook.url} {' '.join(words)}", expect=0)
        good = ci.bash(script, expect=0, MATRIX=ci.matrix("good", good=True), POLICY=policy)
        bad = ci.bash(script, expect=1, MATRIX=ci.matrix("bad", good=False), POLICY=policy)
        ci.bash("-euc", f"seatrial gate check {policy}", expect=1)  # no news
        eventually(lambda: len(hook.received) == 2)
        ci.bash("-euc", "seatrial channel test room && seatrial channel remove room", expect=0)
    secret = added.stdout.strip()
    return Shell(good.stdout, bad.stdout, [one.verified(secret) for one in hook.received])


@pytest.fixture(scope="module")
def ran(ci: Ci, shell: Shell) -> Ci:
    """The same, after a good run and a bad one of the same release."""
    return ci


def test_the_shell_example_lets_a_good_release_pass_and_stops_a_bad_one(shell: Shell) -> None:
    assert "VERIFIED shell: PASS" in shell.good
    assert "VERIFIED shell: FAIL" in shell.bad
    assert [one["type"] for one in shell.told] == ["gate.state_changed"] * 2 + ["test"]
    assert [one["data"]["change"] for one in shell.told[:2]] == ["first", "broken"]
    assert shell.told[1]["data"]["title"] == "shell gate: FAIL for proof 1"


def test_the_lines_of_gitlab_decide_the_same(ran: Ci) -> None:
    ran.policy("release")
    job = YAML(typ="safe").load(EXAMPLES / "gitlab.yml")["release-gate"]
    (line,) = job["script"]
    ran.bash("-euc", line, expect=1)
    (kept,) = job["artifacts"]["paths"]
    assert (ran.folder / kept).stat().st_size > 0
    assert "allow_failure" not in job  # what is not known never lets a release go out
    ran.policy("release", platform="elsewhere")
    ran.bash("-euc", line, expect=5)


def test_the_action_tells_of_a_failure_in_which_nothing_is_markup(ran: Ci) -> None:
    said, summary = ran.action(1, GATE_POLICY=ran.policy("action"))
    assert (said["decision"], said["code"]) == ("FAIL", "1")
    assert re.fullmatch(r"V-\d{4,}", said["verdict"])
    head, blank, *rest = summary.splitlines()
    assert (head, blank) == ("## Seatrial gate: FAIL", "")
    assert rest
    assert all(not line or line.startswith("    ") for line in rest)
    kept = json.loads((ran.folder / "kept" / "verdict.json").read_text())
    assert kept["id"] == said["verdict"]
    assert (ran.folder / "kept" / "verdict.dsse.jsonl").exists()


def test_the_action_maps_every_way_to_end(ran: Ci) -> None:
    first = ran.ask("/runs?limit=50")["items"][-1]["id"]
    good = {"GATE_POLICY": ran.policy("again"), "GATE_RUN": first}
    said, _ = ran.action(0, **good, GATE_LINEAGE="main", GATE_TIMEOUT="5", GATE_STRICT="true")
    assert said["decision"] == "PASS"
    assert ran.ask(f"/verdicts/{said['verdict']}")["lineage"] == "main"
    said, _ = ran.action(5, GATE_POLICY=ran.policy("nowhere", platform="moon"), GATE_RUN=first)
    assert said["decision"] == "INCONCLUSIVE"
    said, summary = ran.action(4, GATE_POLICY="again", SEATRIAL_TOKEN="seatrial_" + "x" * 40)
    assert said == {"decision": "", "verdict": "", "code": "4"}
    assert summary == "## Seatrial gate: no verdict (exit code 4)\n\n"
    said, _ = ran.action(2, GATE_POLICY="gates/none.yaml")
    assert said["code"] == "2"


GH = """\
#!/bin/sh
# Replaces GitHub's `gh`: prints the pull request's comments, and stores the requests it gets.
case "$*" in
  *graphql*) echo 'github-actions[bot]' ;;
  *--paginate*) cat "$HOME/comments" ;;
  *) [ ! -e "$HOME/refused" ] || { echo 'gh: Resource not accessible (HTTP 403)' >&2; exit 1; }
     echo "$*" >> "$HOME/gh-calls"; cp "$GATE_OUT/comment.md" "$HOME/comment" ;;
esac
"""
MARK = "<!-- seatrial: comment -->\n"


@pytest.fixture
def pull_request(ran: Ci) -> Callable[..., tuple[list[str], str]]:
    """Writes the comment beside those that are there: what GitHub is told, and what is printed."""
    gh, calls = ran.folder / "bin" / "gh", ran.folder / "gh-calls"
    gh.write_text(GH)
    gh.chmod(0o755)
    ran.action(1, GATE_POLICY=ran.policy("comment"))
    where = {"GATE_OUT": str(ran.folder / "kept"), "GH_REPO": "o/r", "COMMENT_ON": "7"}

    def write(*there: tuple[int, str, str]) -> tuple[list[str], str]:
        keys = ("id", "by", "body")
        lines = (json.dumps(dict(zip(keys, one, strict=True))) + "\n" for one in there)
        (ran.folder / "comments").write_text("".join(lines))
        calls.unlink(missing_ok=True)
        done = ran.bash(str(ACTION / "comment.sh"), expect=0, **where)
        return calls.read_text().splitlines() if calls.exists() else [], done.stdout

    return write


def test_a_pull_request_gets_one_comment_that_is_replaced(
    ran: Ci, pull_request: Callable[..., tuple[list[str], str]]
) -> None:
    bot = "github-actions[bot]"
    others = [(5, "mallory", f"{MARK}PASS"), (6, bot, f"quoted: {MARK}"), (8, bot, "another's")]
    (made,), said = pull_request(*others)
    assert made.startswith("api --method POST repos/o/r/issues/7/comments ")
    assert said == ""
    own = [(number, bot, MARK + "x" * 9_000) for number in range(77, 107)]
    (again,), _ = pull_request(*others, *own)
    assert again.startswith("api --method PATCH repos/o/r/issues/comments/77 ")
    comment = (ran.folder / "comment").read_text()
    assert comment.startswith(f"{MARK}# proof v1: ")
    assert "FAILED" in comment
    assert "test_unit.py::test\\_it" in comment or "`test_unit.py::test_it" in comment
    assert f"({ran.url}/runs/" in comment


def test_a_comment_that_cannot_be_written_is_a_warning(
    ran: Ci, pull_request: Callable[..., tuple[list[str], str]]
) -> None:
    refused = ran.folder / "refused"
    refused.touch()
    try:
        called, said = pull_request()
    finally:
        refused.unlink()
    assert called == []
    (line,) = said.splitlines()
    assert line.startswith("::warning title=Seatrial::the pull request has no new comment")


def test_words_that_begin_like_options_are_a_policy_and_no_option(ci: Ci) -> None:
    said, _ = ci.action(2, GATE_POLICY="--help")
    assert said["decision"] == ""


@pytest.mark.parametrize(
    ("file", "most"), [("gate.sh", 10), ("github.yml", 11), ("gitlab.yml", 10)]
)
def test_an_example_is_ten_lines_and_stands_in_the_page(file: str, most: int) -> None:
    text = (EXAMPLES / file).read_text()
    assert len(text.splitlines()) <= most
    assert text in (ROOT / "docs" / "how-to" / "ci.md").read_text()


def test_the_shell_of_the_action_is_shell() -> None:
    steps = YAML(typ="safe").load(ACTION / "action.yml")["runs"]["steps"]
    for step in (one for one in steps if "run" in one):
        assert "${{" not in step["run"]  # an input's text must never become part of a script
        done = subprocess.run(["bash", "-n"], input=step["run"].encode(), capture_output=True)
        assert done.returncode == 0, done.stderr
    assert os.access(ACTION / "gate.sh", os.X_OK)
    assert os.access(ACTION / "comment.sh", os.X_OK)
