"""A release decision as a person makes it: run, check, sign, verify elsewhere, waive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.home import Home, a_home, serving

PAYLOAD = """\
schema = 1
name = "tiny"
version = "1.0"
[[job]]
id = "steady"
kind = "demo"
command = ["{python}", "-c", "print('well')"]
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_it.py"]
[[job]]
id = "shaky"
kind = "demo"
command = ["{python}", "shaky.py"]
"""
MATRIX = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: tiny}
subject: {name: tiny, version: "1.0"}
payload: {path: pay}
platforms:
  - {id: here, provider: local}
jobs:
  - {select: "*", on: all}
"""
POLICY = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: tiny, product: tiny, owner: me}
spec:
  subject: {require: [payload_sha256]}
  platforms:
    - {id: here}
  jobs:
    - {id: "*", on: [here]}
"""
WAIVE = ("--reason", "It is mended.", "--days", "3")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "pay").mkdir()
    (tmp_path / "pay" / "payload.toml").write_text(PAYLOAD)
    (tmp_path / "pay" / "test_it.py").write_text("def test_a(): pass\n")
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "gate.yaml").write_text(POLICY)
    with a_home(tmp_path / "home") as home:
        yield home


def run(home: Home, folder: Path, script: str, *, status: int) -> None:
    (folder / "pay" / "shaky.py").write_text(script)
    home.seatrial("run", str(folder / "matrix.yaml"), "-y", status=status)


def test_from_a_run_to_a_verdict_that_others_can_check(home: Home, tmp_path: Path) -> None:
    policy, verdict, ring = (str(tmp_path / n) for n in ("gate.yaml", "v.json", "ring.json"))
    run(home, tmp_path, "print('well')", status=0)
    said = home.seatrial("gate", "check", policy, "--run", "latest", "-o", verdict)
    assert said.startswith("PASS  tiny V-0001")
    home.seatrial("gate", "keys", "export", "-o", ring)
    elsewhere = Home(tmp_path / "elsewhere")
    assert "VERIFIED tiny: PASS" in elsewhere.seatrial("gate", "verify", verdict, "--key", ring)
    assert not elsewhere.path.exists()

    run(home, tmp_path, "raise SystemExit(3)", status=1)
    red = home.seatrial("gate", "check", "tiny", "--run", "latest", status=1)
    assert red.startswith("FAIL  tiny V-0002")
    assert "job/shaky@here" in red
    home.seatrial("gate", "waive", "tiny", "job/shaky@here", *WAIVE)
    home.seatrial("gate", "check", "tiny", "--run", "latest", status=1)
    home.seatrial("gate", "approve", "tiny", "--waiver", "W-0001", status=2)
    home.stop()
    with serving(home):
        secret = home.seatrial("token", "create", "bo", "--scope", "gate").strip()
        bo = Home(tmp_path / "bo", SEATRIAL_URL=home.url, SEATRIAL_TOKEN=secret)
        bo.seatrial("gate", "approve", "tiny", "--waiver", "W-0001")
    waived = home.seatrial("gate", "check", "tiny", "--run", "latest", "--strict", status=10)
    assert "W-0001" in waived

    for number in (1, 2, 3, 4):
        assert "identical" in home.seatrial("gate", "explain", f"V-000{number}", "--replay")
    decisions = [one["decision"] for one in home.json("gate", "history", "tiny")]
    assert decisions == ["PASS_WITH_EXCEPTIONS", "FAIL", "FAIL", "PASS"]
