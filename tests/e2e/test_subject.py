"""A subject of its own: its wheel is built or found, shipped, installed, and proved to be used."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.e2e.home import a_home
from tests.integration.wheel_making import wheel_bytes

MANIFEST = """schema = 1
name = "proof"
version = "1"
[[job]]
id = "suite"
kind = "suite"
pytest = ["test_widget.py"]
"""

MATRIX = """apiVersion: seatrial/v1
kind: Matrix
metadata: {{name: subject}}
subject: {{name: widget, version: "1.2", {source}}}
payload: {{path: payload}}
platforms:
  - {{id: here, provider: local}}
jobs:
  - {{select: "*"}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with a_home(tmp_path_factory.mktemp("subject") / "home") as home:
        yield home


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "payload"
    folder.mkdir()
    (folder / "payload.toml").write_text(MANIFEST)
    (folder / "test_widget.py").write_text(
        'import widget\n\ndef test_it():\n    assert widget.VERSION == "1.2"\n'
    )
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/widget-1.2-py3-none-any.whl").write_bytes(wheel_bytes("widget", "1.2"))
    return tmp_path


def test_a_wheel(home, project):
    (project / "m.yaml").write_text(MATRIX.format(source='wheel: "dist/*.whl"'))
    run = json.loads(home.seatrial("run", str(project / "m.yaml"), "--json"))
    [cell] = run["cells"]
    assert cell["counts"]["passed"] == 1
    assert cell["packages"]["widget"] == "1.2"


def test_a_revision(home, project):
    source = project / "source"
    (source / "widget").mkdir(parents=True)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "widget"\nversion = "1.2"\n'
    )
    (source / "widget" / "__init__.py").write_text("VERSION = '1.2'\n")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first"),
    ):
        subprocess.run(("git", *words), cwd=source, check=True)
    git = f"git: {{url: {source}, rev: main}}"
    (project / "m.yaml").write_text(MATRIX.format(source=git))
    run = json.loads(home.seatrial("run", str(project / "m.yaml"), "--json"))
    assert run["cells"][0]["counts"]["passed"] == 1


def test_a_subject_that_is_shadowed_is_not_believed(home, project):
    shadow = project / "payload" / "widget"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("VERSION = '1.2'\n")
    (project / "m.yaml").write_text(MATRIX.format(source='wheel: "dist/*.whl"'))
    run = json.loads(home.seatrial("run", str(project / "m.yaml"), "--json", status=5))
    [cell] = run["cells"]
    assert (cell["outcome"], cell["reason"]) == ("errored", "wrong_subject")


GATE = """apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: proof, product: proof, owner: me}
spec:
  platforms: [{id: here}]
"""
DROPS = """def pytest_collection_modifyitems(items):
    items[:] = [each for each in items if each.name == "test_it"]
"""
FAILING = "def test_it(): pass\ndef test_fails(): assert False\n"
SHADOW = {"t/widget/__init__.py": "VERSION = 'mine'\n"}


@pytest.mark.parametrize(
    ("files", "status", "verdict", "says"),
    [
        ({"t/test_a.py": "import widget\ndef test(): assert widget.VERSION == 'mine'\n", **SHADOW},
         5, 5, "rename or move t/widget/__init__.py"),
        ({"t/test_a.py": FAILING, "conftest.py": DROPS}, 0, 1,
         "conftest.py deselected 1 test (t/test_a.py::test_fails)"),
    ],
    ids=["shadowed beside the test", "dropped by a conftest"],
)  # fmt: skip
def test_a_gate_does_not_pass_what_was_not_tested(home, project, files, status, verdict, says):
    for name, text in files.items():
        path = project / "payload" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    manifest = MANIFEST.replace("test_widget.py", "t")
    (project / "payload" / "payload.toml").write_text(manifest)
    (project / "m.yaml").write_text(MATRIX.format(source='wheel: "dist/*.whl"'))
    (project / "gate.yaml").write_text(GATE)
    home.seatrial("run", str(project / "m.yaml"), status=status)
    gate = ("gate", "check", str(project / "gate.yaml"), "--run", "latest")
    said = home.seatrial(*gate, status=verdict)
    assert says in " ".join(said.split()), said


def test_another_version_than_the_matrix_says_is_refused(home, project):
    text = MATRIX.format(source='wheel: "dist/*.whl"').replace('"1.2"', '"1.3"')
    (project / "m.yaml").write_text(text)
    before = home.json("runs")
    home.seatrial("run", str(project / "m.yaml"), status=2)
    assert home.json("runs") == before
