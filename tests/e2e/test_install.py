"""The wheel alone in a fresh environment: the first run, and what an extra is needed for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.home import PATIENT_PIP, ROOT, Home

NOT_IN_THE_CORE = ("boto3", "google-cloud", "numpy", "onnx", "pytest", "scipy", "torch")
PROJECT = {
    "pyproject.toml": '[project]\nname = "shipshape"\nversion = "1.2"\n',
    "src/shipshape/__init__.py": "def add(a, b):\n    return a + b\n",
    "tests/test_add.py": (
        "import shipshape\n\ndef test_add():\n    assert shipshape.add(1, 2) == 3\n"
        "def test_not():\n    assert shipshape.add(1, 1) == 3\n"
    ),
}
CLOUD = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: clouds}
subject: {name: shipshape, version: "1.2"}
payload: {path: .}
limits: {max_minutes: 10, max_usd: 1}
platforms:
  - {id: a10g, provider: aws, instance_type: g5.xlarge}
  - {id: l4, provider: gcp, instance_type: g2-standard-4}
jobs:
  - {select: "*", on: all}
"""


class Installed(Home):
    """A home that is used by the command of another environment."""

    bin = Path()

    def command(self, *words: str) -> list[str]:
        return [str(self.bin / "seatrial"), *words]

    def refused(self, *words: str) -> str:
        """What is printed to standard error by a command that refuses."""
        done = subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 2, (words, done.returncode, done.stdout, done.stderr)
        return done.stderr


def pip(python: Path | str, *words: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *words]
    given = os.environ | PATIENT_PIP
    done = subprocess.run(command, env=given, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def package_index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where pip cannot fetch anything."""
    small = ("--no-deps", "--no-cache-dir", "--dest", str(tmp_path_factory.mktemp("index")))
    command = [sys.executable, "-m", "pip", "download", "--quiet", *small, "cronsim==2.8"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a package index that pip can reach")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, package_index: None) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The programs of an environment with the wheel and what it needs, no extra."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=True)
    constraints = ("--constraint", "constraints.txt")
    pip(folder / "bin" / "python", "install", "--quiet", *constraints, str(wheel))
    return folder / "bin"


@pytest.fixture
def home(tmp_path: Path, core: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    for name, text in PROJECT.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    home = Installed(tmp_path / "home")
    home.bin = core
    del home.environment["PYTHONPATH"]
    yield home
    home.stop()


def test_the_wheel_is_typed_and_brings_all_that_is_no_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{package}/py.typed" for package in ("orchestrator", "reports", "runners")} <= names
    for folder in ("migrations", "payload", "templates"):
        assert any(name.startswith(f"orchestrator/_assets/{folder}/") for name in names)


def test_the_core_is_small(core: Path) -> None:
    installed = json.loads(pip(core / "python", "list", "--format=json"))
    names = [one["name"].lower() for one in installed]
    assert [name for name in names if name.startswith(NOT_IN_THE_CORE)] == []


@pytest.mark.slow
def test_the_first_hour_of_a_core(home: Installed) -> None:
    assert home.seatrial("--version") == "seatrial 0.1.0\n"
    home.seatrial("init")
    assert "local-cpu" in home.seatrial("plan", "seatrial.yaml")
    home.seatrial("run", "seatrial.yaml", status=1)
    [cell] = home.json("show", "latest")["cells"]
    assert {k: v for k, v in cell["counts"].items() if v} == {"passed": 1, "failed": 1}

    Path("clouds.yaml").write_text(CLOUD, encoding="utf-8")
    for words in (("plan",), ("run", "--yes")):
        said = home.refused(*words, "clouds.yaml")
        assert said.count("install Seatrial with the extra") == 2
        assert "Traceback" not in said
        assert "clouds.yaml:8:26: platforms.0.provider: provider aws needs boto3" in said
        assert "install Seatrial with the extra `aws`" in said
        assert "clouds.yaml:9:24: platforms.1.provider: provider gcp needs google-cloud" in said
        assert "install Seatrial with the extra `gcp`" in said
    for words in (("doctor",), ("bootstrap",)):
        for cloud in ("aws", "gcp"):
            said = home.refused(*words, cloud)
            assert said.endswith(f"with the extra `{cloud}` (docs/installation.md)\n")
