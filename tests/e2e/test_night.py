"""One whole night: a schedule fires, the run is judged, people are told, the verdict verifies.

On the embedded database, and on Postgres with two controllers of which one is killed while it is
at it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.accounts import ACCOUNT, beside_account, needs_account, open_folder
from tests.e2e.home import Home, a_home, eventually
from tests.e2e.home import serving as served
from tests.e2e.passing_time import let_be_due, let_leases_end
from tests.integration.webhook_receiver import Receiver, receiver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_account]

MANIFEST = """\
schema = 1
name = "widgets"
version = "1"
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_lib.py"]
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: night}}
subject: {{name: lib, version: "1.0", git: {{url: "{repository}", rev: main}}}}
payload: {{path: payload}}
limits: {{max_minutes: 5}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{id: suite}}
"""
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: night, product: widgets, owner: release team}
spec:
  subject: {require: [git_sha, wheel_sha256]}
  platforms:
    - {id: here}
  jobs:
    - {id: suite}
"""
BACKEND = """\
import base64, hashlib, os, time, zipfile

def row(path, text):
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return path + ",sha256=" + digest.decode().rstrip("=") + "," + str(len(text)) + "\\n"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    assert os.geteuid() != 0 and "SEATRIAL_HOME" not in os.environ
    assert not os.access(HOMES, os.R_OK)
    with open(os.environ["HOME"] + "/building", "a") as ledger:
        ledger.write("begun\\n")
    while not os.path.exists(GO):
        time.sleep(0.1)
    name = "lib-1.0-py3-none-any.whl"
    info = "lib-1.0.dist-info"
    files = {
        "lib.py": open("lib.py").read(),
        info + "/METADATA": "Metadata-Version: 2.1\\nName: lib\\nVersion: 1.0\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    rows = [row(*one) for one in files.items()]
    files[info + "/RECORD"] = "".join([*rows, info + "/RECORD,,\\n"])
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
"""


@dataclass
class Project:
    """A repository, a payload that proves it, and the files of its nightly."""

    folder: Path
    commit: str

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    def let_go(self) -> None:
        """Let the wheel be built, which waits for this."""
        (self.folder / "go").touch()

    @property
    def files(self) -> tuple[str, ...]:
        return "--matrix", str(self.folder / "night.yaml"), "--gate", str(self.folder / "gate.yaml")


def make_project(folder: Path, homes: Path) -> Project:
    """Its folder is open to others; the build finds that the homes are not."""
    repository, payload = folder / "repository", folder / "payload"
    for made in (repository, payload):
        made.mkdir(parents=True)
    (payload / "payload.toml").write_text(MANIFEST)
    (payload / "test_lib.py").write_text("import lib\n\ndef test_it():\n    assert lib.X == 1\n")
    (repository / "lib.py").write_text("X = 1\n")
    (repository / "backend.py").write_text(
        f"HOMES, GO = {str(homes)!r}, {str(folder / 'go')!r}\n{BACKEND}"
    )
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(("git", *words), cwd=repository, check=True)
    asked = ("git", "rev-parse", "HEAD")
    head = subprocess.run(asked, cwd=repository, check=True, capture_output=True, text=True)
    (folder / "night.yaml").write_text(MATRIX.format(repository=f"file://{repository}"))
    (folder / "gate.yaml").write_text(POLICY)
    return Project(folder, head.stdout.strip())


def serving(home: Home, project: Project) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A controller whose jobs and builds are another account's."""
    owned = f"chown -R {ACCOUNT} {project.repository}"
    return served(
        home,
        "--local-jobs-as",
        ACCOUNT,
        begun_by=partial(beside_account, home.path / "beside", setup=owned),
        SEATRIAL_TRUSTED_REPOSITORIES=f"file://{project.repository}",
    )


def firing(home: Home) -> dict[str, Any]:
    [found] = home.get("/schedules/night")["firings"]
    return found


def listen(home: Home, people: Receiver) -> str:
    """Add the channel; what its messages are signed with."""
    words = ("channel", "add", "people", people.url, "--allow-private")
    return home.seatrial(*words).strip()


def check_night(home: Home, project: Project, people: Receiver, secret: str) -> None:
    """One run, one verdict, one word to people, and a file that proves it elsewhere."""
    told = firing(home)
    assert (told["outcome"], told["overdue"]) == ("PASS", False)
    [run] = home.json("runs")
    assert run["id"] == told["run"]
    [verdict] = home.json("gate", "history", "night")
    assert verdict["id"] == told["verdict"]
    eventually(lambda: len(people.received) == 1)
    [message] = people.received
    said = str(message.verified(secret))
    assert "PASS" in said
    assert project.commit in said
    keys, signed = home.path / "keys.json", home.path / "verdict.jsonl"
    home.seatrial("gate", "keys", "export", "-o", str(keys))
    with home.client() as client:
        answer = client.get(f"/verdicts/{verdict['id']}/statement")
    signed.write_bytes(answer.content)
    shown = home.seatrial("gate", "verify", str(signed), "--key", str(keys))
    assert shown.startswith("VERIFIED night: PASS")
    assert project.commit in shown
    altered = signed.read_bytes().replace(b'"payload":"ey', b'"payload":"ez', 1)
    signed.write_bytes(altered)
    home.seatrial("gate", "verify", str(signed), "--key", str(keys), status=1)


def add(home: Home, project: Project) -> None:
    when = ("--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--deadline", "60m")
    home.seatrial("schedule", "add", "night", *when, "--subject", "branch", *project.files)


def ledger(home: Home) -> Path:
    """What the build wrote down, in the account's home folder."""
    return home.path / "beside" / "homes" / ACCOUNT / "building"


def test_a_night_on_this_computer(tmp_path: Path) -> None:
    with ExitStack() as stack, receiver() as people:
        project = make_project(stack.enter_context(open_folder()), tmp_path)
        project.let_go()
        home = stack.enter_context(a_home(tmp_path / "home"))
        stack.enter_context(serving(home, project))
        secret = listen(home, people)
        add(home, project)
        home.seatrial("schedule", "trigger", "night")
        eventually(lambda: firing(home)["state"] == "notified")
        [remark] = firing(home)["resolved"]["remarks"]
        assert f"on the controller's computer, as the account {ACCOUNT}, from" in remark
        check_night(home, project, people, secret)


@pytest.mark.needs_postgres
def test_a_night_with_two_controllers_of_which_one_is_killed(
    postgres_url_factory: Any, tmp_path: Path
) -> None:
    url = postgres_url_factory(migrated=False)
    homes = [Home(tmp_path / name, SEATRIAL_DATABASE_URL=url) for name in ("one", "two")]
    with ExitStack() as stack, receiver() as people:
        project = make_project(stack.enter_context(open_folder()), tmp_path)
        controllers = [stack.enter_context(serving(home, project)) for home in homes]
        secret = listen(homes[0], people)
        add(homes[0], project)
        let_be_due(url, "night")  # nobody is asked, both look
        ledgers = [ledger(home) for home in homes]
        eventually(lambda: any(each.exists() for each in ledgers))
        homes[0].seatrial("schedule", "pause", "night")
        # The other had seconds to begin it as well, and did not.
        assert [firing(home)["state"] for home in homes] == ["claimed"] * 2
        assert [each.exists() for each in ledgers].count(True) == 1
        dead, living = (0, 1) if ledgers[0].exists() else (1, 0)
        os.kill(controllers[dead].pid, signal.SIGKILL)
        controllers[dead].wait(timeout=30)
        let_leases_end(url)
        project.let_go()
        eventually(lambda: firing(homes[living])["state"] == "notified", deadline_s=240)
        assert ledgers[living].read_text() == "begun\n"
        check_night(homes[living], project, people, secret)
