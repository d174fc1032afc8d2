"""The wheel, as it is installed: away from the checkout, with its assets inside."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.e2e.home import PATIENT_PIP

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    clone = ["git", "clone", "-q", "--no-hardlinks", f"file://{ROOT}", str(source)]
    if subprocess.run(clone, capture_output=True).returncode != 0:
        pytest.skip("needs a git checkout to build the wheel from")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(folder),
        str(source),
    ]
    subprocess.run(build, check=True, env=os.environ | PATIENT_PIP)
    [built] = folder.glob("seatrial-*.whl")
    return built


def test_only_our_three_names_are_in_it(wheel):
    names = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {n for n in names if not n.endswith(".dist-info")} == {
        "orchestrator",
        "reports",
        "runners",
    }


@pytest.fixture(scope="module")
def seatrial(wheel, tmp_path_factory):
    """A command in an environment of its own that sees our dependencies but not the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(f"{libraries}\n")

    def run(*words: str) -> str:
        environment = {"PATH": os.environ["PATH"], "SEATRIAL_HOME": str(folder / "home")}
        done = subprocess.run(
            [python, "-m", "orchestrator", *words],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.check_output(
        [python, "-c", "import orchestrator; print(orchestrator.__file__)"], cwd=folder, text=True
    )
    assert str(site) in where, "the installed one is used"
    return run


def test_it_answers(seatrial):
    assert seatrial("--version").strip().endswith("0.1.0")
    assert '"platforms"' in seatrial("schema", "matrix")


def test_it_carries_its_migrations_and_payload(seatrial):
    seatrial("db", "upgrade")
    seatrial("db", "check")
    matrix = ROOT / "matrices" / "local.yaml"
    assert "local-cpu" in seatrial("plan", str(matrix))
