"""CPU time that evidence costs a process of pytest, in turns with plain pytest.

A run is started with Jinja as its subject, and its conftest waits. Meanwhile the very process of
pytest that the agent started is started again, with its environment and its arguments, and in turns
with it a plain one.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.home import a_home, eventually

PAIRS = 20
SUBJECT = "jinja2==3.1.6"
WAITS = """
import json, os, pathlib, sys, time
held = pathlib.Path(r"{held}")
started = dict(argv=sys.orig_argv, env=dict(os.environ), cwd=os.getcwd())
(held / "part").write_text(json.dumps(started))
os.rename(held / "part", held / "started")
while not (held / "done").exists():
    time.sleep(0.2)
    print(".", flush=True)
"""
SUITE = """
import jinja2, pytest

@pytest.mark.parametrize("n", range(40))
def test_renders(n):
    assert jinja2.Template("{{ n }}").render(n=n) == str(n)
"""
MANIFEST = """schema = 1
name = "evidence"
version = "1"
[setup]
pip = ["pytest==8.4.2", "markupsafe"]
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_suite.py"]
idle_timeout_minutes = 60
"""
MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: evidence}}
payload: {{path: {payload}}}
subject: {{name: jinja2, version: "3.1.6", wheel: {wheel}}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{id: suite}}
"""


def matrix(folder: Path) -> Path:
    """Write a payload and its matrix, and fetch the subject's wheel."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", SUBJECT]
    subprocess.run([*download, "-d", str(folder)], check=True)
    (wheel,) = folder.glob("*.whl")
    payload = folder / "payload"
    payload.mkdir()
    (payload / "conftest.py").write_text(WAITS.format(held=folder))
    (payload / "test_suite.py").write_text(SUITE)
    (payload / "payload.toml").write_text(MANIFEST)
    file = folder / "matrix.yaml"
    file.write_text(MATRIX.format(payload=payload, wheel=wheel))
    return file


def cpu(argv: list[str], env: dict[str, str], cwd: str) -> float:
    """Return the CPU milliseconds of a process and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measured(started: Path) -> list[tuple[float, float]]:
    """Return CPU milliseconds without and with evidence, in turns; the first pair warms up."""
    seen = json.loads(started.read_text())
    argv, env, cwd = seen["argv"], seen["env"], seen["cwd"]
    Path(cwd, "conftest.py").write_text("")
    # The same plugins in both; the agent's start file gave PYTHONPATH back.
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plain_env = {name: value for name, value in env.items() if not name.startswith("SEATRIAL_")}
    env["SEATRIAL_PYTHONPATH"] = env.pop("PYTHONPATH", "")
    env["SEATRIAL_RECORDS"] = str(started.with_name("records"))
    words = argv[argv.index("pytest") + 1 :]
    plain = [argv[0], "-m", "pytest", *(word for word in words if "seatrial_pytest" not in word)]
    plain.remove("-p")
    pairs = [(cpu(plain, plain_env, cwd), cpu(argv, env, cwd)) for _ in range(PAIRS + 1)]
    return pairs[1:]


def main() -> int:
    """Print both arms and what evidence adds; there is no floor."""
    with tempfile.TemporaryDirectory() as folder, a_home(Path(folder) / "home") as home:
        scratch = Path(folder)
        command = home.command("run", str(matrix(scratch)))
        with subprocess.Popen(command, env=home.environment, stdout=subprocess.DEVNULL) as run:
            try:
                started = scratch / "started"
                eventually(lambda: started.exists() or run.poll() is not None)
                pairs = measured(started)
            finally:
                (scratch / "done").touch()
    plain, ours = (statistics.median(arm) for arm in zip(*pairs, strict=True))
    added = statistics.median(one - other for other, one in pairs)
    print(
        f"evidence: {added:.0f} ms of CPU more for a process of pytest, {len(pairs)} pairs:"
        f" {ours:.0f} ms against {plain:.0f} ms of plain pytest, load {os.getloadavg()[0]:.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
