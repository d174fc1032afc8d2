"""A machine for the agent's tests: lays out the folders, ships the agent, drives its verbs.

Agents are started by ``serve``, the way a controller does it. What only reads or clears away is
called in this process: `test_agent_lifecycle` drives each verb by ``serve``, too.
"""

from __future__ import annotations

import compileall
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from runners.agent import agent_process, pack_artifacts
from runners.agent.layout import AttemptFolder, is_locked
from runners.agent.serve import pull

REPOSITORY = Path(__file__).resolve().parents[2]
AGENT = REPOSITORY / "runners" / "agent"
PAYLOADS = REPOSITORY / "tests" / "payloads"
SUBJECT = {"distribution": "tool", "version": "1.5", "requirement": "tool==1.5"}
LEAN = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "pytest-xdist", "execnet")
"""The distributions that make up pytest, with what it needs."""
PATIENCE_S = 240.0
"""How long a test waits for what must happen, on a machine with much else to do."""


@dataclass(frozen=True)
class Evidence:
    """What an attempt has said."""

    events: list[dict[str, Any]]
    log: bytes

    def of(self, kind: str, job: str | None = None) -> list[dict[str, Any]]:
        """The data of all events of a kind (and of a job)."""
        return [
            event["data"]
            for event in self.events
            if event["kind"] == kind and (job is None or event["job"] == job)
        ]

    @property
    def end(self) -> dict[str, Any]:
        """The data of the last event, which must be ``end``."""
        assert self.events[-1]["kind"] == "end", self.events[-1]
        return self.events[-1]["data"]

    def finished(self, job: str = "suite") -> dict[str, Any]:
        """The data of a job's one ``finished`` event."""
        (data,) = [one for one in self.of("phase", job) if one["name"] == "finished"]
        return data

    def reports(self, job: str = "suite") -> list[dict[str, Any]]:
        """All test reports of a job."""
        return [one for one in self.of("test", job) if one["record"] == "report"]

    def outcomes(self, job: str = "suite") -> dict[str, str]:
        """One word per test, the worst of its phases."""
        found: dict[str, str] = {}
        for report in self.reports(job):
            word = _word(report)
            before = found.get(report["nodeid"], "passed")
            found[report["nodeid"]] = max(before, word, key=_ORDER.index)
        return found

    def counts(self, job: str = "suite") -> dict[str, int]:
        """How many tests there are of each outcome."""
        return dict(Counter(self.outcomes(job).values()))

    def messages(self, level: str | None = None) -> list[str]:
        """What was said for a person."""
        return [one["message"] for one in self.of("log") if level in (None, one["level"])]


_ORDER = ("passed", "skipped", "xfailed", "xpassed", "failed", "error", "crashed", "hung")


def _word(report: Mapping[str, Any]) -> str:
    if "cause" in report:
        return str(report["cause"])
    if "wasxfail" in report:
        return "xfailed" if report["outcome"] == "skipped" else "xpassed"
    if report["outcome"] == "failed" and report["when"] != "call":
        return "error"
    return str(report["outcome"])


@dataclass
class Machine:
    """A base folder with the agent in it."""

    base: Path
    agent_python: str = os.environ.get("SEATRIAL_TEST_AGENT_PYTHON", sys.executable)
    attempts: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = self.base / "agents" / "a1"
        _compile_agent()
        ours = shutil.ignore_patterns("on_path")
        shutil.copytree(AGENT, self.home / "seatrial_agent", ignore=ours)
        shutil.copytree(AGENT / "on_path", self.home / "on_path")

    def unpack(self, folder: Path) -> str:
        """Put a payload where an archive would have been unpacked; return its digest."""
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        target = self.base / "payloads" / digest
        if not target.exists():
            shutil.copytree(folder, target, symlinks=True)
        return digest

    def prepare(
        self,
        payload: str | Path,
        *,
        python: str,
        jobs: Iterable[Mapping[str, Any]] = (),
        name: str | None = None,
        **more: Any,
    ) -> Path:
        """Make an attempt's folder with its plan in it."""
        name = name or f"attempt{len(self.attempts)}"
        folder = self.base / "attempts" / name
        folder.mkdir(parents=True, mode=0o700)
        self.attempts.append(folder)
        plan = {
            "v": 1,
            "attempt": name,
            "payload": self.unpack(PAYLOADS / payload if isinstance(payload, str) else payload),
            "wheels": None,
            "python": python,
            "subject": None,
            "payload_user": False,
            **more,
            "environment": {"name": "image", "index": False, **more.get("environment", {})},
            "limits": {"deadline_s": PATIENCE_S, "kill_grace_s": 1, **more.get("limits", {})},
            "jobs": [{**JOB, **job} for job in jobs or [{}]],
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        return folder

    def run(
        self,
        payload: str | Path,
        *,
        timeout_s: float = PATIENCE_S,
        secrets: Any = None,
        **more: Any,
    ) -> Evidence:
        """Run an attempt to its end and return everything it has said."""
        folder = self.prepare(payload, **more)
        self.start(folder, secrets=secrets)
        return self.wait(folder, timeout_s=timeout_s)

    def verb(
        self, *words: object, stdin: bytes = b"", code: int | None = 0, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Ask a ``serve`` of its own for one verb, as a controller does."""
        request = f"{json.dumps([str(word) for word in words])} {len(stdin)}\n".encode() + stdin
        served = subprocess.run(
            [self.agent_python, "-E", "-s", "-m", "seatrial_agent", "serve"],
            cwd=self.home, input=request, capture_output=True, timeout=PATIENCE_S, check=False,
            **more,
        )  # fmt: skip
        assert served.returncode == 0, served.stderr.decode()
        done = answer_of(served.stdout)
        assert code is None or done.returncode == code, (done.returncode, done.stderr.decode())
        return done

    def start(self, folder: Path, *, secrets: Mapping[str, str] | None = None, **more: Any) -> None:
        """Start the agent."""
        stdin = json.dumps({"secrets": dict(secrets or {})}).encode()
        self.verb("start", "--attempt", folder, stdin=stdin, **more)

    def pull(
        self, folder: Path, *, events: int = 0, log: int = 0, limit: int = 2**22
    ) -> tuple[dict[str, Any], bytes, bytes]:
        """Return the header, the events' bytes and the log's bytes."""
        out = io.BytesIO()
        pull(AttemptFolder(folder), out, events_from=events, log_from=log, limit_bytes=limit)
        header, _, rest = out.getvalue().partition(b"\n")
        said = json.loads(header)
        assert len(rest) == said["events_bytes"] + said["log_bytes"]
        return said, rest[: said["events_bytes"]], rest[said["events_bytes"] :]

    def follow(
        self, folder: Path, *, until: str | None = None, timeout_s: float = PATIENCE_S
    ) -> Evidence:
        """Pull until the agent is gone, or until some text stands in the events."""
        events, log = bytearray(), bytearray()
        deadline = time.monotonic() + timeout_s
        while True:
            while is_locked(AttemptFolder(folder).lock) and not _says(folder, until):
                assert time.monotonic() < deadline, _tail(folder)
                time.sleep(0.02)
            said, more, output = self.pull(folder, events=len(events), log=len(log))
            events += more
            log += output
            got_all = len(events) == said["events_size"] and len(log) == said["log_size"]
            if (not said["alive"] and got_all) or (until and until.encode() in events):
                return Evidence(parse(bytes(events)), bytes(log))
            assert time.monotonic() < deadline, _tail(folder)

    def wait(self, folder: Path, *, timeout_s: float = PATIENCE_S) -> Evidence:
        """Wait for the end, check what is true of every evidence, and return it."""
        evidence = self.follow(folder, timeout_s=timeout_s)
        assert [event["seq"] for event in evidence.events] == [
            n + 1 for n in range(len(evidence.events))
        ]
        assert {event["v"] for event in evidence.events} == {1}
        assert evidence.of("end") == [evidence.end]
        assert processes_of(folder) == {}
        return evidence

    def bundle(self, folder: Path) -> dict[str, bytes]:
        """Return the artifacts by name."""
        raw = io.BytesIO()
        pack_artifacts.bundle(AttemptFolder(folder).artifacts, raw)
        raw.seek(0)
        with tarfile.open(fileobj=raw) as tar:
            assert all(entry.isreg() for entry in tar)
            return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]

    def close_all(self) -> None:
        """Remove every attempt; nothing of them may be left."""
        for folder in self.attempts:
            agent_process.close(AttemptFolder(folder))
            assert not folder.exists()
            assert processes_of(folder) == {}


JOB: dict[str, Any] = {
    "id": "suite",
    "kind": "suite",
    "pytest": ["."],
    "command": None,
    "timeout_s": 200,
    "silence_s": 120,
    "env": {},
    "path_variables": [],
    "gpus": 0,
    "secrets": [],
    "skip": [],
}


@cache
def _compile_agent() -> None:
    """Compile the agent once: as on a host that has run it, no test pays for that again."""
    compileall.compile_dir(AGENT, quiet=1)


def _says(folder: Path, text: str | None) -> bool:
    """Whether the text stands in the events."""
    return text is not None and text.encode() in _events(folder)


def _events(folder: Path) -> bytes:
    """The events so far: none before the agent has opened their file."""
    path = AttemptFolder(folder).events
    return path.read_bytes() if path.exists() else b""


def _tail(folder: Path) -> str:
    """The last events, for a test that waited in vain."""
    return _events(folder)[-3000:].decode(errors="replace")


def answer_of(frames: bytes) -> subprocess.CompletedProcess[bytes]:
    """Return one verb's exit code and output, from the frames of its answer."""
    streams, status = {b"out": b"", b"err": b""}, None
    while frames:
        assert status is None, "nothing follows an answer"
        line, _, frames = frames.partition(b"\n")
        kind, _, number = line.partition(b" ")
        if kind == b"exit":
            status = int(number)
        else:
            streams[kind] += frames[: int(number)]
            frames = frames[int(number) :]
    assert status is not None, "an answer ends with an exit code"
    return subprocess.CompletedProcess([], status, streams[b"out"], streams[b"err"])


def laid_out(payload: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = payload / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return payload


def command(*words: str, **more: Any) -> dict[str, Any]:
    """Return a job that runs a command."""
    return {"id": "demo", "kind": "demo", "pytest": None, "command": list(words), **more}


def parse(raw: bytes) -> list[dict[str, Any]]:
    """Parse whole lines."""
    return [json.loads(line) for line in raw.split(b"\n") if line.strip()]


def processes_of(folder: Path) -> dict[int, str]:
    """Return the living processes that carry an attempt's mark, or are its agent."""
    wanted = f"SEATRIAL_ATTEMPT_DIR={folder}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    return found


def lean_python(folder: Path) -> str:
    """Make an interpreter that holds pytest and nothing heavy; return its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for path in lean_packages():
        (site / path.name).symlink_to(path)
    return str(folder / "bin" / "python")


def lean_packages() -> list[Path]:
    """Return the files and folders that make up pytest, each from where it is installed."""
    found: list[Path] = []
    for name in LEAN:
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
        found += (Path(str(installed.locate_file(top))) for top in sorted(tops))
    return found


@contextmanager
def machine_at(base: Path) -> Iterator[Machine]:
    """A machine whose attempts are all closed in the end, whatever the test did."""
    machine = Machine(base)
    try:
        yield machine
    finally:
        machine.close_all()


def installed_tool(folder: Path, files: Mapping[str, str]) -> Path:
    """Return an interpreter with pytest and the distribution `tool` 1.5 of these files."""
    python = lean_python(folder / "venv")
    (site,) = folder.glob("venv/lib/python3*/site-packages")
    record = "".join(f"{name},,\n" for name in files)
    for name, text in {**files, "tool-1.5.dist-info/RECORD": record}.items():
        path = site / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return Path(python)
