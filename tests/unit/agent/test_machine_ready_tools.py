"""The verb `ready`: answered at once, by whatever programs the machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runners.agent import machine_ready


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a program on the path, beside the system's own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("says", "code", "state"),
    [
        ("status: done", 0, "ok"),
        ("status: disabled", 0, "ok"),
        ("status: done\nextended_status: degraded done\nrecoverable_errors: WARNING", 2, "ok"),
        ("status: running", 0, "waiting"),
        ("status: running\nextended_status: degraded running", 2, "waiting"),
        ("status: not started", 0, "waiting"),
        ("status: error\ndetail:\nno such module: gpu", 1, "failed"),
        ("status: error", 0, "failed"),
        ("Traceback: it broke", 1, "failed"),
    ],
)
def test_cloud_init(program: Any, says: str, code: int, state: str) -> None:
    program("cloud-init", f"cat <<'END'\n{says}\nEND\nexit {code}")
    found = machine_ready.cloud_init()
    assert (found["check"], found["state"]) == ("cloud_init", state)
    assert found["detail"]
    if state == "failed":
        assert found["detail"] == f"exit code {code}: {says}"


@pytest.mark.parametrize(
    ("tool", "script", "state", "says"),
    [
        ("nvidia-smi", "echo 'NVIDIA A10G, 580.1'", "ok", "NVIDIA A10G, 580.1"),
        ("nvidia-smi", "echo 'could not communicate'; exit 9", "waiting", "could not communicate"),
        ("nvidia-smi", "exit 9", "waiting", "nvidia-smi: exit code 9"),
        ("rocm-smi", "echo 'card0: MI300X'", "ok", "card0: MI300X"),
    ],
)
def test_drivers(program: Any, tool: str, script: str, state: str, says: str) -> None:
    program(tool, script)
    found = machine_ready.driver()
    assert (found["check"], found["state"]) == ("driver", state)
    assert says in found["detail"]


def test_a_tool_that_hangs_is_not_waited_for(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_ready, "_CLOUD_INIT_S", 0.1)
    monkeypatch.setattr(machine_ready, "_DRIVER_S", 0.1)
    for tool in ("cloud-init", "nvidia-smi"):
        program(tool, "exec sleep 600")
    assert machine_ready.cloud_init()["state"] == "waiting"
    assert machine_ready.cloud_init()["detail"] == "no answer within 0.1 s: "
    assert machine_ready.driver()["detail"].startswith("nvidia-smi: no answer within 0.1 s")
