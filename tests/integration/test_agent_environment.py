"""The overlay environment, the wheelhouse, the facts about both, and the proof of the subject."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.agent.attempt_errors import WrongSubject
from runners.agent.environment_facts import Asker
from runners.agent.installed_packages import take
from runners.agent.layout import AttemptFolder
from runners.agent.plan import PlanProduct, PlanSubject
from runners.agent.subject_metadata import SubjectMetadata
from runners.agent.variant import prove, prove_installed
from tests.integration.agent_machine import Machine, command, lean_python
from tests.integration.wheel_making import wheel_bytes

MOVES = """import builtins, configparser, sys
sys.modules["{0}.moves.builtins"] = builtins
sys.modules["{0}.moves.configparser"] = configparser
"""
"""Modules of others under second names, as six.moves has them."""


PLUGINS = "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"


def wheel(folder: Path, name: str, version: str, *, requires: str = "") -> Path:
    """Make a wheel with one package and a RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: all\n"
    metadata += "Requires-Dist: More[x] >=2 ; python_version >= '3' and extra == 'all'\n"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        f"{name}/part.py": "answer = 42\n",
        f"{name}/moves.py": MOVES.format(name),
        f"{name}/lean.py": "def late():\n    import forgotten\n    return forgotten.answer\n",
        f"{name}/whole.py": "try:\n    import more\nexcept ImportError:\n    more = None\n",
        f"{name}/needs.py": "import more\n",
        f"{name}/plugins/__init__.py": PLUGINS,
        f"{name}/made.py": 'exec("def twice(number): return 2 * number")\n',
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for where, text in files.items():
            archive.writestr(where, text)
            digest = hashlib.sha256(text.encode()).digest()
            value = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            lines.append(f"{where},sha256={value},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    return path


def subject() -> dict[str, str]:
    return {"distribution": "tool", "version": "1.5", "requirement": "tool==1.5"}


SHOW = command("{python}", "-c", "import tool; print('tool', tool.__version__, tool.__file__)")


def test_overlay_sees_the_interpreter_and_adds_to_it(
    machine: Machine, lean: str, payload: Path
) -> None:
    wheel(machine.base / "wheels" / "w1", "tool", "1.5", requires="extra>=2")
    wheel(machine.base / "wheels" / "w1", "extra", "2.0")
    script = "import sys, pytest, tool, extra; print(sys.prefix, pytest.__file__, tool.__file__)"
    folder = machine.prepare(
        payload,
        python=lean,
        wheels="w1",
        subject=subject(),
        environment={"requirements": ["extra"], "constraints": ["extra==2.0"]},
        jobs=[command("{python}", "-c", script)],
    )
    machine.start(folder)
    evidence = machine.wait(folder)
    assert evidence.finished("demo")["exit_code"] == 0, evidence.log.decode()
    prefix, of_pytest, of_tool = evidence.log.split(b"=====\n")[-1].decode().split()
    assert prefix == str(folder / "venv")
    assert Path(of_pytest).is_relative_to(Path(lean).parent.parent)
    assert Path(of_tool).is_relative_to(folder / "venv")
    (environment,) = evidence.of("environment")
    assert environment["packages"]["tool"] == "1.5"
    assert environment["packages"]["extra"] == "2.0"
    assert environment["packages"]["pytest"]
    lean = {"iniconfig", "pluggy", "pygments", "pytest"}
    assert lean <= set(environment["interpreter_packages"])
    assert not {"tool", "extra"} & set(environment["interpreter_packages"])
    assert environment["python_path"] == str(folder / "venv" / "bin" / "python")
    assert environment["python"].count(".") == 2
    assert (environment["torch"], environment["torch_devices"]) == (None, [])
    assert environment["separated_user"] is False
    assert environment["own_environment"] is False
    assert environment["subject_imports"] == ["tool"]
    assert not [text for text in evidence.messages("warning") if "Seatrial itself" in text]
    assert environment["machine"]["cpus"] >= 1
    assert environment["machine"]["memory_bytes"] > 2**28
    assert "interpreters" not in environment["machine"]
    assert json.loads(machine.bundle(folder)["environment.json"]) == environment


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"python": "/no/such/python"}, "/no/such/python is no usable Python: not found"),
        ({"wheels": "w2"}, "No matching distribution found for not-shipped>=3"),
        ({}, "nothing was shipped and the environment allows no index"),
    ],
)
def test_environment_that_cannot_be_made(
    machine: Machine, lean: str, payload: Path, more: dict[str, Any], says: str
) -> None:
    (machine.base / "wheels" / "w2").mkdir(parents=True)
    options = {"python": lean, "environment": {"requirements": ["not-shipped>=3"]}, **more}
    evidence = machine.run(payload, **options)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "environment")
    assert says in evidence.end["detail"]
    assert evidence.of("phase", "suite") == []


def test_a_source_tree_that_shadows_the_subject_is_found_out(
    machine: Machine, lean: str, payload: Path
) -> None:
    """Only the second job's path leads to it: every way of importing is proven."""
    wheel(machine.base / "wheels" / "w3", "tool", "1.5")
    (payload / "src" / "tool").mkdir(parents=True)
    (payload / "src" / "tool" / "__init__.py").write_text("__version__ = 'from the tree'\n")
    path = {"id": "second", "env": {"PYTHONPATH": "src"}, "path_variables": ["PYTHONPATH"]}
    jobs = [SHOW, {**SHOW, **path}]
    evidence = machine.run(payload, python=lean, wheels="w3", subject=subject(), jobs=jobs)
    assert (evidence.end["outcome"], evidence.end["reason"]) == ("errored", "wrong_subject")
    assert "tool is imported from" in evidence.end["detail"]
    assert evidence.of("environment"), "the environment is evidence all the same"
    assert evidence.of("phase", "demo") == []


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    """An attempt with an overlay."""
    attempt = AttemptFolder(tmp_path_factory.mktemp("overlay") / "attempts" / "a")
    attempt.payload.mkdir(parents=True)
    lean_python(attempt.venv)
    return Asker(attempt, {}, None, lambda: None)


@pytest.fixture
def installed(overlay: Asker, tmp_path: Path) -> Iterator[Asker]:
    """The overlay holds tool 1.5, unpacked the way pip does."""
    (site,) = overlay.attempt.venv.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel(tmp_path, "tool", "1.5")) as archive:
        archive.extractall(site)
    yield overlay
    for left in (*site.glob("tool*"), overlay.attempt.payload):
        shutil.rmtree(left)
    overlay.attempt.payload.mkdir()


def _spoil(asker: Asker, how: str) -> None:
    (site,) = asker.attempt.venv.glob("lib/python3*/site-packages")
    if how == "changed":
        (site / "tool" / "part.py").write_text("answer = 43\n")
    elif how == "shadowed by the payload":
        (asker.attempt.payload / "tool.py").write_text("")
    elif how == "editable":
        (site / "tool-1.5.dist-info" / "RECORD").write_text("__editable___tool.py,,\n")
    elif how == "gone":
        shutil.rmtree(site / "tool-1.5.dist-info")
    elif how == "another portion":
        empty = base64.urlsafe_b64encode(hashlib.sha256().digest()).rstrip(b"=").decode()
        record = site / "tool-1.5.dist-info" / "RECORD"
        record.write_text(f"space/tool.py,sha256={empty},0\n")
        (site / "space").mkdir(exist_ok=True)
        (site / "space" / "tool.py").touch()
        (asker.attempt.payload / "space").mkdir()
        (asker.attempt.payload / "space" / "tool.py").write_text("")
    elif how == "deleted":
        (site / "tool" / "part.py").unlink()


@pytest.mark.parametrize("beside", ["", "a folder of tests", "a portion of its namespace"])
def test_subject_is_proven(installed: Asker, beside: str) -> None:
    (site,) = installed.attempt.venv.glob("lib/python3*/site-packages")
    record = site / "tool-1.5.dist-info" / "RECORD"
    name = "tests/__init__.py" if "tests" in beside else "space/tool/__init__.py"
    if beside:
        (site / name).parent.mkdir(parents=True)
        (site / name).touch()
        (installed.attempt.payload / name.partition("/")[0] / "other").mkdir(parents=True)
        (installed.attempt.payload / "tests").mkdir(exist_ok=True)
        (installed.attempt.payload / "tests" / "__init__.py").touch()
        record.write_text(f"{record.read_text()}{name},,0\n")
    _prove("1.5", installed)


def _prove(version: str, asker: Asker) -> None:
    asked = PlanSubject("tool", version, f"tool=={version}")
    prove_installed(asked, take(asker.attempt, asked, None, lambda: None).files)
    prove(asked, asker)


@pytest.mark.parametrize(
    ("how", "version", "says"),
    [
        ("changed", "1.5", "tool/part.py differs from what tool 1.5 installed"),
        ("shadowed by the payload", "1.5", "tool is imported from"),
        (
            "shadowed by the payload",
            "1.5",
            "Fix: leave that source out of the payload, with exclude",
        ),
        ("another portion", "1.5", "space.tool is imported from"),
        ("editable", "1.5", "installed no importable files of its own"),
        ("gone", "1.5", "tool is not installed"),
        ("deleted", "1.5", "tool/part.py cannot be read"),
        ("nothing", "1.6", "tool is installed as 1.5, not 1.6"),
    ],
)
def test_what_is_not_the_subject(installed: Asker, how: str, version: str, says: str) -> None:
    _spoil(installed, how)
    with pytest.raises(WrongSubject) as caught:
        _prove(version, installed)
    assert says in caught.value.detail


def test_an_image_that_holds_another_build_of_the_subject(
    machine: Machine, lean: str, payload: Path, tmp_path: Path
) -> None:
    """Same version, other bytes, already in the interpreter: the shipped one must win."""
    image = lean_python(tmp_path / "image")
    (site,) = (tmp_path / "image").glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel(tmp_path / "other", "tool", "1.5", requires="helper")) as archive:
        archive.extractall(site)
    (site / "tool" / "part.py").write_text("answer = 'wrong'\n")
    wheels = machine.base / "wheels" / "w3"
    wheel(wheels, "tool", "1.5", requires="helper")
    ran = tmp_path / "ran"
    code = f"import sys\nopen({str(ran)!r}, 'a').write(' '.join(sys.orig_argv) + '\\n')\n"
    made = wheel_bytes("helper", "1.0", files={"helper.py": code, "helper.pth": "import helper\n"})
    (wheels / "helper-1.0-py3-none-any.whl").write_bytes(made)
    script = "import tool.part; print('answer', tool.part.answer)"
    evidence = machine.run(
        payload, python=image, wheels="w3", subject=subject(),
        jobs=[command("{python}", "-c", script)],
    )  # fmt: skip
    assert evidence.end["outcome"] == "completed", evidence.end
    assert b"answer 42\n" in evidence.log
    assert script in ran.read_text()
    assert "--no-input" not in ran.read_text(), "what was installed runs in the installer"


def test_the_environment_of_seatrial_itself_is_told(
    machine: Machine, payload: Path, tmp_path: Path
) -> None:
    python = lean_python(tmp_path / "venv")
    [site] = Path(python).parents[1].glob("lib/python3*/site-packages")
    info = site / "seatrial-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seatrial\nVersion: 1.0\n")
    evidence = machine.run(payload, python=python, jobs=[command("true")])
    [environment] = evidence.of("environment")
    assert environment["own_environment"] is True
    told = [text for text in evidence.messages("warning") if "Seatrial itself" in text]
    assert len(told) == 1


def test_metadata_of_other_versions_of_the_subject_is_told(
    machine: Machine, payload: Path, tmp_path: Path
) -> None:
    """Of the payload as the subject: importlib.metadata reads what an earlier release left."""
    python = lean_python(tmp_path / "venv")
    [site] = Path(python).parents[1].glob("lib/python3*/site-packages")
    old, stale = site / "my_tool-0.9.dist-info", payload / "src" / "My_Tool.egg-info"
    (payload / "src" / "my_tool").mkdir(parents=True)
    (payload / "src" / "my_tool" / "__init__.py").write_text("")
    more: dict[str, Any] = {
        "python": python,
        "product": {"name": "my-tool", "version": "1.5"},
        "jobs": [command("true", env={"PYTHONPATH": "src"})],
    }

    def told() -> tuple[list[str], dict[str, Any]]:
        evidence = machine.run(payload, **more)
        [environment] = evidence.of("environment")
        return [text for text in evidence.messages("warning") if "my-tool" in text], environment

    warnings, environment = told()
    assert not warnings
    assert environment["subject_metadata"] == []
    assert environment["subject_module"] == "src/my_tool/__init__.py"
    for info, version in ((old / "METADATA", "0.9"), (stale / "PKG-INFO", "1.0")):
        info.parent.mkdir()
        info.write_text(f"Metadata-Version: 2.1\nName: my-tool\nVersion: {version}\n")
    shutil.copytree(stale, machine.base / "payloads" / machine.unpack(payload) / "src" / stale.name)
    warnings, environment = told()
    assert environment["subject_metadata"] == [
        {"version": "1.0", "metadata": "src/My_Tool.egg-info"},
        {"version": "0.9", "metadata": str(old)},
    ]
    (said,) = warnings
    assert said == (
        "the subject is my-tool 1.5, imported from src/my_tool/__init__.py, and its jobs find"
        f" metadata of another version: 1.0 in src/My_Tool.egg-info, 0.9 in {old}."
        " importlib.metadata reads 1.0 in src/My_Tool.egg-info. Fix: take the other versions out of"
        " the payload and of the interpreter, or name a wheel as the subject"
    )


def test_metadata_of_the_subjects_own_version_is_no_other_one() -> None:
    versions = {"src/tool.egg-info": "1.5.0", "/site/tool-0.9.dist-info": "0.9"}
    told = SubjectMetadata(versions, "src/tool.py")
    assert told.warning(PlanProduct("tool", "1.5"), is_payload=False) == (
        "the subject is tool 1.5, imported from src/tool.py, and its jobs find metadata of another"
        " version: 0.9 in /site/tool-0.9.dist-info. importlib.metadata reads 1.5.0 in"
        " src/tool.egg-info. Fix: take the other versions out of the payload and of the interpreter"
    )


def test_probe(machine: Machine, lean: str) -> None:
    said = json.loads(
        machine.verb("probe", "--candidate", lean, "--candidate", "no-such-python").stdout
    )
    assert said["v"] == 1
    assert set(said) == {
        "v", "os", "kernel", "machine", "libc", "hostname", "cpus", "cpu_model", "memory_bytes",
        "disk_free_bytes", "devices", "interpreters",
    }  # fmt: skip
    good, absent = said["interpreters"]
    assert good["candidate"] == good["path"] == lean
    assert good["version"] == ".".join(map(str, sys.version_info[:3]))
    assert (good["implementation"], good["error"], good["has_venv"]) == ("cpython", None, True)
    assert good["packages"]["pytest"] == pytest.__version__
    assert good["pip"] is None
    assert good["site_paths"]
    assert absent["path"] is absent["records"] is None
    assert absent["error"] == "not found, or not executable"


def test_other_files_of_the_same_version_are_told(machine: Machine, lean: str) -> None:
    """A package that was built again, or exchanged, is not what an earlier run was proven with."""

    def records() -> str:
        [found] = json.loads(machine.verb("probe", "--candidate", lean).stdout)["interpreters"]
        assert found["packages"].get("depx", "1.0") == "1.0"
        return str(found["records"])

    [site] = Path(lean).parents[1].glob("lib/python3*/site-packages")
    info = site / "depx-1.0.dist-info"
    without = records()
    info.mkdir()
    try:
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: depx\nVersion: 1.0\n")
        (info / "RECORD").write_text("depx/__init__.py,sha256=good,4\n")
        installed = records()
        (info / "RECORD").write_text("depx/__init__.py,sha256=bad,4\n")
        assert len({without, installed, records()}) == 3
        (info / "RECORD").write_text("depx/__init__.py,sha256=good,4\n")
        assert records() == installed
    finally:
        shutil.rmtree(info)
    assert records() == without
