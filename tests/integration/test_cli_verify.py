"""gate verify: offline, in a process of its own, with nothing but two files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import cli_answers
from tests.integration.api_context import desk
from tests.integration.gate_world import API, check, put, ran


@pytest.fixture(scope="module")
def signed(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Path, Path]]:
    """A signed verdict and the keyring, as a controller gave them out."""
    home = tmp_path_factory.mktemp("home")
    (home / "app.db").write_bytes(sqlite_template.read_bytes())
    with desk(home, f"sqlite:///{home / 'app.db'}") as api:
        run = ran(api)
        put(api)
        verdict = check(api, runs=[run])
        file, ring = home / "verdict.json", home / "keyring.json"
        file.write_bytes(api.client.get(f"{API}/verdicts/{verdict['id']}/statement").content)
        ring.write_bytes(api.client.get(f"{API}/keyring").content)
        yield file, ring


def verify(file: Path, key: Path, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Where there is no controller, and no home that one could be started in."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "gate", "verify", file, "--key", key, *words],
        env={**os.environ, "SEATRIAL_HOME": str(home / "none"), "SEATRIAL_URL": "http://[::1]:9"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_verdict_is_verified_without_a_controller(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    found = verify(*signed, home=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("VERIFIED release: PASS for 2026-03-01T12:00:00Z\n")
    assert "version: 1.10" in found.stdout
    assert not (tmp_path / "none").exists()
    shown = verify(*signed, "--json", home=tmp_path)
    cli_answers.check("seatrial gate verify", shown.stdout)
    assert json.loads(shown.stdout)["decision"] == "PASS"


def test_one_that_was_changed_is_not(signed: tuple[Path, Path], tmp_path: Path) -> None:
    file, ring = signed
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 1
    changed = tmp_path / "changed.json"
    changed.write_bytes(whole)
    found = verify(changed, ring, home=tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert f"{changed}: NOT VERIFIED: " in found.stderr
    assert verify(tmp_path / "none.json", ring, home=tmp_path).returncode == 2


def test_a_file_without_an_end_is_not_read_to_its_end(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    found = verify(Path("/dev/zero"), signed[1], home=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert "/dev/zero is larger than 67108864 bytes" in found.stderr.replace("\n", " ")


def test_an_expired_key_is_named(signed: tuple[Path, Path], tmp_path: Path) -> None:
    file, ring = signed
    said = json.loads(ring.read_text())
    (key,) = said["keys"]
    key["not_after"] = "2026-02-28T00:00:00+00:00"
    late = tmp_path / "late.json"
    late.write_text(json.dumps(said))
    found = verify(file, late, home=tmp_path)
    assert found.returncode == 1
    assert f"the key {key['id']} expired on 2026-02-28 00:00 UTC" in found.stderr.replace("\n", " ")
