"""Where a secret is to be found, and where not: machine, controller, reports. Inside the seal."""

from __future__ import annotations

import base64
import sqlite3
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.home import Home
from tests.lab import payloads_of_lab as lab
from tests.lab.lab_machines import LabMachines
from tests.lab.site import a_site, served

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("sealed"), pytest.mark.timeout(600)]

SECRET = "hf_lab/Qz81+mNotForAnyEye=="
WORD = "a-word-that-may-be-seen"
# Not to be found by what looks for it.
PATTERN = f"[{SECRET[0]}]{SECRET[1:]}"
LURKER = """
import os, pathlib, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.environ.clear()
os.execve(os.sys.executable, ["python3", "lurker_on.py"], {})
"""
LURKER_ON = """
import glob, pathlib, time
while True:
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            data = open(path, "rb").read()
        except OSError:
            continue
        if b"HF_TOKEN=" in data:
            pathlib.Path("/tmp/stolen").write_bytes(data)
    time.sleep(0.05)
"""
OWNER = f"""
import base64, json, os, pathlib, sys, urllib.parse
import gates
value = os.environ["HF_TOKEN"]
print("the owner has", len(value), "characters")
gates.at("owner")
print("{WORD}", value, repr(value), json.dumps(value), urllib.parse.quote(value, safe=""))
print("{WORD}", value, file=sys.stderr)
for piece in value:
    print(piece, end="", flush=True)
print()
with open(os.environ["SEATRIAL_EVENTS"], "a") as events:
    events.write(json.dumps({{"check": "c", "outcome": "passed", "reason": f"{WORD} {{value}}"}}))
    events.write("\\n")
pathlib.Path(os.environ["SEATRIAL_ARTIFACTS"], "notes.txt").write_text(f"{WORD} {{value}}")
"""
TELLS = f"""
import os
def test_that_tells():
    value = os.environ["HF_TOKEN"]
    print("{WORD}", value)
    assert value == "{WORD}", f"{WORD} {{value}}"
"""
OTHER = """
import os, pathlib, sys
import gates
if "HF_TOKEN" in os.environ:
    sys.exit("another job's secret was handed over")
mine = pathlib.Path(os.environ["SEATRIAL_ARTIFACTS"]).parents[1]
seen = [str(path) for path in mine.glob("owner/**/*") if path.is_file() and path.read_bytes()]
print("of the owner's files I can read:", seen)
gates.at("other")
"""
GIVEN = 'secrets = ["HF_TOKEN"]'
JOBS = "".join(
    (
        lab.demo("lurker", "lurker.py"),
        lab.demo("owner", "owner.py", GIVEN),
        lab.suite("tells", "test_tells.py", GIVEN),
        lab.demo("other", "other.py"),
    )
)
FILES = {
    "lurker.py": LURKER,
    "lurker_on.py": LURKER_ON,
    "owner.py": OWNER,
    "test_tells.py": TELLS,
    "other.py": OTHER,
}
ENVIRONMENT = '[setup]\npip = ["pytest>=8"]\n'


@pytest.fixture
def site(machines):
    with a_site(machines) as site:
        yield site


@pytest.fixture
def home(site, tmp_path):
    with served(site, tmp_path / "home", HF_TOKEN=SECRET) as home:
        yield home


@pytest.fixture
def matrix(tmp_path) -> Path:
    payload = lab.a_payload(tmp_path / "payload", JOBS, FILES, ENVIRONMENT)
    secrets = {"HF_TOKEN": {"from": "env"}}
    return lab.a_matrix(tmp_path / "m.yaml", payload, lab.AWS, secrets=secrets)


def test_a_secret_is_seen_by_the_jobs_that_ask_and_by_nobody_else(
    home: Home, site, machines: LabMachines, matrix, tmp_path
):
    run = home.launch(matrix)
    machine = lab.the_machine(machines)
    lab.gate(machines, machine, "owner")
    assert on_disk(machines, machine, WORD), "the search finds what is there"
    assert on_disk(machines, machine, PATTERN) == []
    holders = in_processes(machines, machine)
    assert holders, "the job has it in its environment"
    assert all(path.endswith("/environ") for path in holders), "and not on its command line"
    assert owners(machines, machine, holders) == {"seatrial-payload"}
    spy = f"setpriv --reuid=nobody --clear-groups cat {holders[0]}"
    assert machines.execute(machine, "sh", "-c", spy).returncode, "nobody else can read that"
    assert machines.execute(machine, "test", "-e", "/tmp/stolen").returncode == 1
    lab.open_gate(machines, machine, "owner")
    lab.gate(machines, machine, "other")
    assert in_processes(machines, machine) == []
    left = on_disk(machines, machine, PATTERN)
    assert all("/jobs/owner/" in path or "/jobs/tells/" in path for path in left), left
    lab.open_gate(machines, machine, "other")
    shown = lab.finished(home, run)
    (cell,) = shown["cells"]
    assert {job["id"]: job["outcome"] for job in cell["jobs"]} == {
        "lurker": "failed", "owner": "passed", "tells": "failed", "other": "passed",
    }  # fmt: skip
    log = lab.log_of(home, run, "aws")
    assert f"{WORD} *** '***'" in log
    assert "of the owner's files I can read: []" in log
    for page in pages(home, run):
        assert SECRET not in page
        assert quote(SECRET, safe="") not in page
    lab.nothing_left(site)
    home.stop()
    seen = " ".join(found_below(home.path, WORD))
    assert "app.db" in seen, "the search looks into the database"
    assert "/blobs/" in seen, "and into what is compressed"
    assert found_below(home.path, SECRET) == []


def test_no_digest_depends_on_a_secret(home: Home, site, matrix, tmp_path):
    with served(site, tmp_path / "second", HF_TOKEN="another-value") as second:
        payloads = [one.json("plan", str(matrix))["payload"] for one in (home, second)]
    assert payloads[0] == payloads[1]
    assert len(payloads[0]) == 64


def test_a_secret_that_the_controller_lacks_is_said_before_any_job_runs(site, matrix, tmp_path):
    with served(site, tmp_path / "poor") as home:
        said = subprocess.run(
            home.command("run", str(matrix), "-y"),
            env=home.environment, capture_output=True, text=True, timeout=240,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert said.returncode in (2, 5), said
        assert "HF_TOKEN" in said.stdout + said.stderr
    lab.nothing_left(site)


def on_disk(machines: LabMachines, machine: str, pattern: str) -> list[str]:
    """Files of the machine, newer than its image, that hold it."""
    files = "find / /run /tmp /dev/shm -xdev -type f -cnewer /etc/machine-id -print0"
    line = f"{files} | xargs -0r grep -laF -e WORD 2>/dev/null | sort -u"
    if pattern.startswith("["):
        line = line.replace("-laF", "-la")
    return lab.shell(machines, machine, line.replace("WORD", f"'{pattern}'")).split()


def in_processes(machines: LabMachines, machine: str) -> list[str]:
    files = "/proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    return lab.shell(machines, machine, f"grep -la -e '{PATTERN}' {files} 2>/dev/null || :").split()


def owners(machines: LabMachines, machine: str, paths: list[str]) -> set[str]:
    return set(lab.shell(machines, machine, f"stat -c %U {' '.join(paths)}").split())


def pages(home: Home, run: str) -> Iterator[str]:
    """Everything that a person is shown."""
    yield home.seatrial("show", run, "--json")
    with home.client() as client:
        yield client.get(f"/runs/{run}/cells/aws/tests").text
        yield client.get(f"/runs/{run}/cells/aws/log").text
        for artifact in home.get(f"/runs/{run}")["cells"][0]["artifacts"]:
            yield client.get(f"/runs/{run}/cells/aws/artifacts/{artifact['name']}").text
        for kind in ("summary", "cost"):
            yield client.get(f"/runs/{run}/reports/{kind}.json").text


def found_below(folder: Path, word: str) -> list[str]:
    """Files that hold it, compressed or in a database's cell included."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(word.encode() in data for data in contents(path))]


def contents(path: Path) -> Iterator[bytes]:
    if not path.exists():  # a database's log, which went with its last reader
        return
    data = path.read_bytes()
    yield from unfolded(data)
    if "blobs" in path.parts:
        yield b"".join(framed(data))
    if data.startswith(b"SQLite format 3"):
        with closing(sqlite3.connect(path)) as database:
            query = "select name from sqlite_master where type = 'table'"
            for (table,) in database.execute(query).fetchall():
                for row in database.execute(f'select * from "{table}"'):
                    for value in row:
                        yield from unfolded(
                            value if isinstance(value, bytes) else str(value).encode()
                        )


def framed(data: bytes) -> Iterator[bytes]:
    """A blob's frames: each its length, and as many bytes of zlib."""
    while data:
        size = int.from_bytes(data[:4], "big")
        yield zlib.decompress(data[4 : 4 + size])
        data = data[4 + size :]


def unfolded(data: bytes) -> Iterator[bytes]:
    """The data, and what it is when it was encoded or compressed."""
    yield data
    for bits in (15, 31, -15):
        try:
            yield zlib.decompressobj(bits).decompress(data)
        except zlib.error:
            continue
    try:
        yield base64.b64decode(data, validate=True)
    except ValueError:
        return
