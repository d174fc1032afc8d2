"""A controller that others can reach keeps its own computer to itself, or to another account."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.accounts import ACCOUNT, beside_account, needs_account, open_folder
from tests.e2e.home import Home, a_home, eventually
from tests.ssh_hosts import free_port

NIGHTLY = ("--cron", "0 2 * * *", "--tz", "UTC", "--owner", "me")
WAITS = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1], "go").exists():
    time.sleep(0.1)
"""
TRIES = """
import os, pathlib, pwd, signal, socket, sys

home, pid = sys.argv[1], int(sys.argv[2])
print("I am", pwd.getpwuid(os.geteuid()).pw_name)

def can(what, attempt):
    try:
        attempt()
    except OSError:
        return
    print("CAN", what)

can("list the home", lambda: os.listdir(home))
for name in ("token", "app.db", "controller.pid", "keys/signing/private.pem"):
    can("read " + name, lambda: open(home + "/" + name, "rb").read())
can("see its environment", lambda: open(f"/proc/{pid}/environ", "rb").read())
can("follow its files", lambda: os.readlink(f"/proc/{pid}/fd/0"))
can("send it signals", lambda: os.kill(pid, 0))
can("use its socket", lambda: socket.socket(socket.AF_UNIX).connect(home + "/controller.sock"))
can("become root", lambda: os.setuid(0))
print("SECRET" if "SEATRIAL" in " ".join(os.environ.values()) + " ".join(
    name for name in os.environ if name in ("SEATRIAL_HOME", "CANARY")) else "no secret")
"""
MANIFEST = """
schema = 1
name = "tries"
version = "1"
[[job]]
id = "tries"
kind = "demo"
command = ["{{python}}", "tries.py", {home!r}, {pid!r}]
"""
MATRIX = """
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: tries}
subject: {name: tries, version: "1"}
payload: {path: payload}
platforms:
  - {id: here, provider: local}
jobs: [{id: tries}]
"""


def payload(folder: Path, home: Path, pid: int) -> Path:
    """The adversary's; its matrix."""
    (folder / "payload").mkdir(parents=True)
    (folder / "payload" / "tries.py").write_text(TRIES)
    manifest = MANIFEST.format(home=str(home), pid=str(pid))
    (folder / "payload" / "payload.toml").write_text(manifest)
    (folder / "m.yaml").write_text(MATRIX)
    return folder / "m.yaml"


@contextmanager
def serving(home: Home, *options: str, account: Path | None = None) -> Iterator[str]:
    """`serve`, as a person starts it; its address. With a folder, beside the account."""
    port = free_port()
    words = home.command("serve", "--port", str(port), *options)
    home.path.mkdir(mode=0o700, exist_ok=True)
    with (home.path / "served.log").open("ab") as log:
        process = subprocess.Popen(
            beside_account(account, *words) if account else words,
            env={**home.environment, "CANARY": "a secret of the controller's"},
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: process.poll() is not None or httpx.get(f"{url}/readyz").is_success)
        assert process.poll() is None, (home.path / "served.log").read_text()
        yield url
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(300)


def somebody(home: Home, url: str) -> Home:
    """A person with a token of the scope `run`, who knows nothing of the home."""
    token = home.seatrial("token", "create", "somebody", "--scope", "run").split()[-1]
    own = Home(home.path.with_name("somebody"), SEATRIAL_URL=url, SEATRIAL_TOKEN=token)
    own.path.mkdir()
    return own


def refused(home: Home, *words: str) -> str:
    done = subprocess.run(
        home.command(*words), env=home.environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2, (done.stdout, done.stderr)
    return done.stderr


def test_who_can_be_reached_by_others_runs_nothing_here(tmp_path: Path) -> None:
    with a_home(tmp_path / "home") as home, serving(home) as url:
        matrix = payload(tmp_path / "tries", home.path, home.controller_pid())
        person = somebody(home, url)
        for one, *words in (
            (person, "plan", str(matrix)),
            (person, "run", str(matrix), "-y"),
            (home, "run", str(matrix), "-y"),
            (home, "schedule", "add", "night", "--matrix", str(matrix), *NIGHTLY),
        ):
            said = " ".join(refused(one, *words).split())
            assert "platforms.0.provider: provider: local runs" in said, said
            assert "serve --local-jobs-as ACCOUNT" in said
        elsewhere = MATRIX.replace("provider: local", "provider: fake")
        (tmp_path / "tries" / "s.yaml").write_text(
            f"{elsewhere}limits: {{max_usd: 1}}\nsecrets: {{CANARY: {{from: env}}}}\n"
        )
        said = refused(person, "plan", str(tmp_path / "tries" / "s.yaml"))
        assert "secrets.CANARY: the controller does not provide the secret CANARY" in said
        assert home.json("runs") == []
        assert home.get("/schedules")["items"] == []


def test_what_was_begun_alone_comes_home_and_nothing_more_begins(tmp_path: Path) -> None:
    """A home whose owner launched runs and a schedule, before others could reach it."""
    matrix = payload(tmp_path / "tries", tmp_path, 0)
    (tmp_path / "tries" / "payload" / "tries.py").write_text(WAITS)
    two = "  - {id: here, provider: local}\n  - {id: later, provider: local}\n"
    text = MATRIX.replace("  - {id: here, provider: local}\n", two)
    matrix.write_text(text + "limits: {max_parallel: 1}\n")
    with a_home(tmp_path / "home") as home:
        home.seatrial("schedule", "add", "night", "--matrix", str(matrix), *NIGHTLY)
        run = home.launch(matrix)
        eventually(lambda: "begun" in home.seatrial("logs", run))
        home.kill_controller()
        with serving(home):
            (tmp_path / "go").touch()
            eventually(lambda: home.json("show", run)["state"] == "finished")
            # Either of the two may have begun; the other one waited.
            cells = home.json("show", run)["cells"]
            begun, later = sorted(cells, key=lambda cell: cell["outcome"], reverse=True)
            home.seatrial("schedule", "trigger", "night")
            eventually(lambda: home.get("/schedules/night")["firings"][0]["state"] == "notified")
            [firing] = home.get("/schedules/night")["firings"]
    assert (begun["outcome"], later["outcome"], later["reason"]) == ("passed", "errored", "config")
    assert later["detail"].startswith("provider: local runs its jobs on the computer of the cont")
    assert firing["outcome"] == "errored"
    assert "provider: local runs its jobs on the computer of the controller" in firing["reason"]


@needs_account
def test_jobs_of_another_account_find_nothing_of_the_controller(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "ns"
    private.mkdir(mode=0o700)
    key = private / "signing.pem"
    key.write_text("a key")
    with (
        a_home(tmp_path / "home") as home,
        serving(home, "--local-jobs-as", ACCOUNT, account=public) as url,
    ):
        person = somebody(home, url)
        matrix = payload(tmp_path / "tries", home.path, home.controller_pid())
        run = json.loads(person.seatrial("run", str(matrix), "-y", "--json"))
        said = person.seatrial("logs", run["id"])
    assert f"I am {ACCOUNT}\n" in said
    assert "no secret\n" in said
    assert "CAN" not in said
    [cell] = run["cells"]
    assert (cell["outcome"], len(cell["attempts"])) == ("passed", 1)


@needs_account
def test_an_account_that_can_reach_the_controller_is_not_taken(
    tmp_path: Path,
) -> None:
    """Each refusal names what stands against it, and nothing answers afterwards."""
    with open_folder() as folder:
        refuse_each(Home(folder / "home"), tmp_path)


def refuse_each(home: Home, folder: Path) -> None:
    home.path.mkdir(mode=0o700)
    key = home.path.parent / "signing.pem"
    key.write_text("a key")
    key.chmod(0o600)
    home.environment["SEATRIAL_SIGNING_KEY_FILE"] = str(key)
    nopasswd = f"echo '{ACCOUNT} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-tests\n"
    cases = [
        ("nobody-at-all", "", "there is no account 'nobody-at-all': `useradd --system"),
        ("root", "", "root is the controller's own user, whose files its jobs could read"),
        ("nobody", "", "the account nobody has no home folder of its own (/nonexistent)"),
        (ACCOUNT, f"chmod 644 {key}", f"it can read {key}"),
        (ACCOUNT, nopasswd, "sudo lets it become root without a password"),
    ]
    for number, (name, setup, expected) in enumerate(cases):
        key.chmod(0o600)
        port = ("--host", "0.0.0.0", "--port", str(free_port()))
        words = home.command("serve", *port, "--local-jobs-as", name)
        done = subprocess.run(
            beside_account(folder / str(number), *words, setup=setup),
            env=home.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert f"--local-jobs-as {name}: " in done.stderr
        assert expected in done.stderr
        assert not (home.path / "controller.sock").exists()
