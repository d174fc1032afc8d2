"""`seatrial init` on made-up projects: what it writes is read back by the real readers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.bootstrap.cli_wiring import CommandWiring
from orchestrator.cli.app import main
from orchestrator.cli.starter.starter_files import (
    NOT_SHIPPED,
    files_for,
    inspect_project,
    write_all,
)
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import Matrix, expand
from tests.integration.wheel_making import wheel_bytes


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder


def written(folder: Path) -> tuple[Manifest, Matrix]:
    """Write both files, and read them as a launch would."""
    write_all(files_for(inspect_project(folder), folder), force=False)
    documents = FileDocuments()
    manifest = documents.read_manifest((folder / "payload.toml").read_text(), "payload.toml")
    text = (folder / "seatrial.yaml").read_text()
    traits = CommandWiring().traits
    return manifest, documents.check_matrix(text, "s.yaml", manifest=manifest, providers=traits)


PLAIN = """
    [project]
    name = "shipshape"
    version = "1.10"
    dependencies = ["numpy>=1.26"]
"""


@pytest.mark.parametrize(
    ("files", "needs"),
    [
        (
            {"requirements/tests.in": "pytest\nfreezegun\n"},
            ("pytest", "numpy>=1.26", "freezegun"),
        ),
        (
            {"tests/requirements.txt": "pretend", "requirements-dev.txt": "ruff"},
            ("pytest>=8", "numpy>=1.26", "pretend"),
        ),
        (
            {
                "requirements/tests.in": "trio",
                "requirements/tests.txt": """
                    # made by a tool
                    pytest==8.3.4 \\
                        --hash=sha256:00
                        # via -r tests.in
                    trio==0.27.0
                """,
            },
            ("pytest==8.3.4", "numpy>=1.26", "trio==0.27.0"),
        ),
        (
            {
                "tox.ini": """
                    [testenv]
                    deps =
                        -r{toxinidir}/ci/needs.txt
                        coverage: coverage
                        attrs
                    [testenv:docs]
                    deps = sphinx
                """,
                "ci/needs.txt": "-r more.txt\nfreezegun  # of the clock",
                "ci/more.txt": "hypothesis",
                "requirements-dev.txt": "ruff",
            },
            ("pytest>=8", "numpy>=1.26", "hypothesis", "freezegun", "attrs"),
        ),
        (
            {
                "tox.ini": "[testenv]\ncommands = pytest",
                "requirements-dev.txt": "-r requirements-dev.txt",
            },
            ("pytest>=8", "numpy>=1.26"),
        ),
    ],
    ids=["requirements folder", "beside the tests", "compiled", "tox", "a file that names itself"],
)
def test_what_tests_need_is_found_outside_of_the_metadata(
    tmp_path: Path, files: dict[str, str], needs: tuple[str, ...]
) -> None:
    folder = project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_hull.py": "", **files})
    assert set(inspect_project(folder).needs.requirements) == set(needs)


def test_a_src_layout_with_a_test_extra(tmp_path: Path) -> None:
    folder = project(
        tmp_path,
        {
            "pyproject.toml": PLAIN
            + """
    [project.optional-dependencies]
    test = ["pytest>=7.4", "hypothesis", "shipshape[io]"]
    io = ["safetensors>=0.4"]
    [tool.pytest.ini_options]
    testpaths = ["tests"]
    """,
            "src/shipshape/__init__.py": "",
            "tests/test_hull.py": "def test_it(): pass",
        },
    )
    manifest, matrix = written(folder)
    assert (manifest.name, manifest.version) == ("shipshape", "1.10")
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=7.4", "numpy>=1.26", "hypothesis", "safetensors>=0.4")
    assert manifest.job[0].pytest == ("tests",)
    assert manifest.job[0].env == {"PYTHONPATH": "src"}
    assert (matrix.subject.name, matrix.subject.version) == ("shipshape", "1.10")
    cells = expand(matrix, manifest)
    assert [(cell.id, cell.jobs) for cell in cells] == [("local-cpu", ("tests",))]


def test_tests_beside_the_code(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": PLAIN, "tests/data.json": "{}",
        "shipshape/__init__.py": "", "shipshape/hull_test.py": "",
        ".venv/pyvenv.cfg": "", ".venv/lib/test_other.py": "", "build/test_old.py": "",
    }  # fmt: skip
    manifest, _ = written(project(tmp_path, files))
    assert manifest.job[0].pytest == ("shipshape",)
    assert manifest.job[0].env == {"PYTHONPATH": "."}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\ntestpaths = checks more\naddopts = --cov=shipshape -n 2\n"),
        ("tox.ini", "[pytest]\ntestpaths = checks more\naddopts = --cov=shipshape -n 2\n"),
        ("setup.cfg", "[tool:pytest]\ntestpaths = checks more\naddopts = --cov=shipshape -n 2\n"),
        (
            "pyproject.toml",
            PLAIN
            + "[tool.pytest.ini_options]\ntestpaths = ['checks', 'more']\n"
            + "addopts = '--cov=shipshape -n 2'\n",
        ),
    ],
)
def test_every_pytest_configuration_is_read(tmp_path: Path, name: str, text: str) -> None:
    files = {"pyproject.toml": PLAIN, "checks/a.py": "", "more/b.py": ""}
    manifest, _ = written(project(tmp_path, {**files, name: text}))
    assert manifest.job[0].pytest == ("checks", "more")
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=8", "numpy>=1.26", "pytest-cov", "pytest-xdist")


def test_an_old_project_with_setup_cfg_only(tmp_path: Path) -> None:
    files = {
        "setup.cfg": """\
            [metadata]
            name = old.ship
            version = 2.0
            [options]
            install_requires =
                numpy
            [options.extras_require]
            testing = pytest-timeout
            """,
        "test/test_a.py": "",
    }
    manifest, _ = written(project(tmp_path, files))
    assert (manifest.name, manifest.version) == ("old-ship", "2.0")
    assert manifest.job[0].pytest == ("test",)
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=8", "numpy", "pytest-timeout")


def test_requirements_files_and_what_is_left_out_of_them(tmp_path: Path) -> None:
    text = "-r base.txt\n# a comment\nnumpy==1.26.4  # pinned\n-e .\nbad @@ line\n"
    folder = project(tmp_path / "my ship", {"requirements.txt": text, "tests/test_a.py": ""})
    manifest, _ = written(folder)
    assert manifest.name == "my-ship"
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=8", "numpy==1.26.4")
    notes = " | ".join(inspect_project(folder).notes)
    assert all(
        left in notes for left in ("base.txt: cannot be read", "'-e .'", "'bad @@ line'", "0.0.0")
    )


def test_dependency_groups_are_followed(tmp_path: Path) -> None:
    groups = """
    [dependency-groups]
    test = ["pytest-asyncio", {include-group = "typing"}]
    typing = ["mypy"]
    """
    files = {"pyproject.toml": PLAIN + groups, "tests/test_a.py": ""}
    manifest, _ = written(project(tmp_path, files))
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=8", "numpy>=1.26", "pytest-asyncio", "mypy")


@pytest.mark.parametrize("named", ["dev-dependencies", "group.dev.dependencies"])
@pytest.mark.parametrize("has_group", [True, False])
def test_packages_for_tests_that_only_poetry_reads_are_said_to_be_passed_over(
    tmp_path: Path, named: str, has_group: bool
) -> None:
    poetry = f'\n[tool.poetry.{named}]\nPyYAML = "^6"\n'
    group = '\n[dependency-groups]\ntest = ["pyyaml"]\n' if has_group else ""
    files = {"pyproject.toml": PLAIN + poetry + group}
    folder = project(tmp_path, files | {"tests/test_a.py": ""})
    said = [note for note in inspect_project(folder).notes if "was passed over" in note]
    assert [note.partition(" was")[0] for note in said] == (
        [] if has_group else [f"[tool.poetry.{named}]"]
    )


def test_a_dynamic_version_is_looked_for_in_the_package(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "ship-shape"\ndynamic = ["version"]\n',
        "src/ship_shape/__init__.py": '__version__ = "3.1.4"\n',
        "tests/test_a.py": "",
    }
    manifest, _ = written(project(tmp_path, files))
    assert manifest.version == "3.1.4"


@pytest.mark.parametrize(
    ("source", "exclude"),
    [("src/shipshape", ("src/shipshape",)), ("shipshape", ("shipshape",))],
)
def test_a_wheel_that_is_built_is_the_subject_and_nothing_shadows_it(
    tmp_path: Path, source: str, exclude: tuple[str, ...]
) -> None:
    files = {"pyproject.toml": PLAIN, f"{source}/__init__.py": "", "tests/test_a.py": ""}
    folder = project(tmp_path, files)
    assert "seatrial init --force" in written_matrix(folder)
    (folder / "dist").mkdir()
    wheel = wheel_bytes("shipshape", "1.10")
    (folder / "dist/shipshape-1.10-py3-none-any.whl").write_bytes(wheel)
    for name in ("payload.toml", "seatrial.yaml"):
        (folder / name).unlink()
    manifest, matrix = written(folder)
    assert matrix.subject.wheel == "dist/*.whl"
    assert matrix.subject.version == "1.10"
    assert manifest.exclude == (*NOT_SHIPPED, *exclude)
    assert manifest.job[0].env == {}


def test_a_wheel_of_another_version_than_the_project_s_is_noted(tmp_path: Path) -> None:
    folder = project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": ""})
    (folder / "dist").mkdir()
    wheel = folder / "dist/shipshape-1.9-py3-none-any.whl"
    wheel.write_bytes(wheel_bytes("shipshape", "1.9"))
    said = [note for note in inspect_project(folder).notes if "pyproject.toml says" in note]
    assert len(said) == 1
    assert said[0].startswith(f"pyproject.toml says 1.10, the wheel {wheel} is 1.9: `pip wheel")


@pytest.mark.parametrize("source", ["src/shipshape", "shipshape"])
def test_a_source_file_that_is_newer_than_the_wheel_is_noted(tmp_path: Path, source: str) -> None:
    files = {f"{source}/__init__.py": "", f"{source}/deep/hull.py": "", "tests/test_a.py": ""}
    folder = project(tmp_path, {"pyproject.toml": PLAIN, **files})
    (folder / "dist").mkdir()
    wheel = folder / "dist/shipshape-1.10-py3-none-any.whl"
    wheel.write_bytes(wheel_bytes("shipshape", "1.10"))
    for name in files:
        os.utime(folder / name, (1_000_000, 1_000_000))
    os.utime(wheel, (1_000_000, 1_000_000))
    assert "is newer than" not in " ".join(inspect_project(folder).notes)
    hull = folder / f"{source}/deep/hull.py"
    os.utime(hull, (1_000_000.75, 1_000_000.75))
    os.utime(wheel, (1_000_000.25, 1_000_000.25))
    said = " ".join(inspect_project(folder).notes)
    assert "is newer than" not in said, "a wheel has the second in which it was built"
    os.utime(hull, (1_000_060, 1_000_060))
    (said,) = [note for note in inspect_project(folder).notes if "is newer than" in note]
    assert said.startswith(f"{hull} (1970-01-12 13:47:40 UTC) is newer than the wheel {wheel}")


def test_doctests_of_the_source_are_not_run_where_a_wheel_is_the_subject(tmp_path: Path) -> None:
    settings = '[tool.pytest.ini_options]\ntestpaths = ["src", "tests"]\n'
    files = {"src/shipshape/__init__.py": "", "tests/test_a.py": ""}
    folder = project(tmp_path, {"pyproject.toml": PLAIN + settings, **files})
    (folder / "dist").mkdir()
    wheel = wheel_bytes("shipshape", "1.10")
    (folder / "dist/shipshape-1.10-py3-none-any.whl").write_bytes(wheel)
    manifest, matrix = written(folder)
    assert matrix.subject.wheel == "dist/*.whl"
    assert manifest.job[0].pytest == ("tests",)


def written_matrix(folder: Path) -> str:
    written(folder)
    return (folder / "seatrial.yaml").read_text()


@pytest.mark.parametrize(
    ("wheels", "said"),
    [
        (
            {"shipshape-1.10-py3-none-any.whl": b"", "shipshape-1.9-py3-none-any.whl": b""},
            "2 wheels",
        ),
        ({"other-1.0-py3-none-any.whl": wheel_bytes("other", "1.0")}, "is not of shipshape"),
        ({"shipshape-1.10-py3-none-any.whl": b"torn"}, "cannot be read"),
        ({"shipshape.whl": wheel_bytes("shipshape", "1.10")}, "cannot be read"),
    ],
)
def test_a_wheel_that_cannot_be_the_subject(
    tmp_path: Path, wheels: dict[str, bytes], said: str
) -> None:
    files = {"pyproject.toml": PLAIN, "src/shipshape/__init__.py": "", "tests/test_a.py": ""}
    folder = project(tmp_path, files)
    (folder / "dist").mkdir()
    for name, data in wheels.items():
        (folder / "dist" / name).write_bytes(data)
    manifest, matrix = written(folder)
    assert (matrix.subject.wheel, manifest.job[0].env) == (None, {"PYTHONPATH": "src"})
    assert said in " ".join(inspect_project(folder).notes)


def test_tests_within_the_source_keep_the_payload_the_subject(tmp_path: Path) -> None:
    files = {"pyproject.toml": PLAIN, "shipshape/__init__.py": "", "shipshape/hull_test.py": ""}
    folder = project(tmp_path, files)
    (folder / "dist").mkdir()
    wheel = wheel_bytes("shipshape", "1.10")
    (folder / "dist/shipshape-1.10-py3-none-any.whl").write_bytes(wheel)
    manifest, matrix = written(folder)
    assert (matrix.subject.wheel, manifest.exclude) == (None, NOT_SHIPPED)
    assert "the tests are within the source" in " ".join(inspect_project(folder).notes)


def test_an_unpacked_source_distribution_has_the_version_that_it_was_packed_with(
    tmp_path: Path,
) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "shipshape"\ndynamic = ["version"]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: shipshape\nVersion: 4.5.6\n\nLong text.\n",
        "src/shipshape/__init__.py": '__version__ = "0"\n',
        "tests/test_a.py": "",
    }
    manifest, matrix = written(project(tmp_path, files))
    assert (manifest.version, matrix.subject.version) == ("4.5.6", "4.5.6")


def test_an_empty_folder_still_gets_a_suite_and_a_note(tmp_path: Path) -> None:
    folder = project(tmp_path / "void", {"README": ""})
    manifest, _ = written(folder)
    assert manifest.job[0].pytest == ("tests",)
    assert any("no tests were found" in note for note in inspect_project(folder).notes)


def run_init(*args: str) -> int:
    return main(CommandWiring(), ["init", *args])


def test_the_command_says_what_it_wrote_and_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": ""})
    assert run_init(str(tmp_path)) == 0
    out, err = capsys.readouterr()
    names = ("payload.toml", "seatrial.yaml", "gate.yaml")
    assert out.splitlines() == [f"wrote {tmp_path / name}" for name in names]
    run = f"seatrial run {tmp_path / 'seatrial.yaml'}"
    check = f"seatrial gate check {tmp_path / 'gate.yaml'}"
    assert err.splitlines()[-1] == f"Next: {run}, then {check}"
    assert len((tmp_path / "payload.toml").read_text().splitlines()) <= 12


def test_a_project_without_tests_is_told_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": PLAIN})
    assert run_init(str(tmp_path)) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    run = f"seatrial run {tmp_path / 'seatrial.yaml'}"
    assert last.startswith(f"Next: put tests into tests/ (test_*.py), then {run}, then ")


def test_the_policy_demands_the_tests_of_the_matrix_on_its_platform(tmp_path: Path) -> None:
    folder = project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": ""})
    manifest, matrix = written(folder)
    policy = FileDocuments().read_policy((folder / "gate.yaml").read_text(), "gate.yaml")
    assert policy.metadata.product == manifest.name
    assert [rule.id for rule in policy.spec.platforms] == [one.id for one in matrix.platforms]
    asked = [(rule.id, *rule.on) for rule in policy.spec.jobs]
    assert asked == [(manifest.job[0].id, matrix.platforms[0].id)]


@pytest.mark.parametrize(("name", "gate"), [("hull_2", "hull_2"), ("ship.shape", "ship-shape")])
def test_the_gate_has_the_product_s_name(tmp_path: Path, name: str, gate: str) -> None:
    """Names of gates are unique in a home, which may have the gates of several projects."""
    metadata = f'[project]\nname = "{name}"\nversion = "1.0"\n'
    folder = project(tmp_path, {"pyproject.toml": metadata, "tests/test_a.py": ""})
    manifest, _ = written(folder)
    policy = FileDocuments().read_policy((folder / "gate.yaml").read_text(), "gate.yaml")
    assert (policy.metadata.name, manifest.name) == (gate, gate)


def test_a_policy_that_exists_is_kept_also_if_the_others_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": "", "gate.yaml": "mine"})
    for force in ((), ("--force",)):
        assert run_init(str(tmp_path), *force) == 0
        assert "gate.yaml" not in capsys.readouterr().out
        assert (tmp_path / "gate.yaml").read_text() == "mine"


def test_a_policy_of_another_product_is_kept_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": ""})
    assert run_init(str(tmp_path)) == 0
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ark"\nversion = "1"\n')
    capsys.readouterr()
    assert run_init(str(tmp_path), "--force") == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "kept" in line]
    assert said == (
        f"note: {tmp_path / 'gate.yaml'} is kept, and it decides on 'shipshape', not on 'ark':"
        " correct name and product in its metadata, or delete it and run `seatrial init --force`"
    )
    (tmp_path / "gate.yaml").unlink()
    assert run_init(str(tmp_path), "--force") == 0
    assert run_init(str(tmp_path), "--force") == 0
    assert "kept" not in capsys.readouterr().err


def test_nothing_is_overwritten_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": PLAIN, "tests/test_a.py": "", "seatrial.yaml": "mine"})
    assert run_init(str(tmp_path)) == 2
    assert "seatrial.yaml exist already: nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "payload.toml").exists()
    assert (tmp_path / "seatrial.yaml").read_text() == "mine"
    assert run_init(str(tmp_path), "--force") == 0
    assert (tmp_path / "seatrial.yaml").read_text() != "mine"


SETUP = """
    import sys
    from setuptools import setup

    sys.exit("it was executed")
    setup(
        name="old.ship",
        version="2.5",
        install_requires=["numpy"],
        extras_require={"test": ["hypothesis"]},
    )
"""


def test_literals_of_setup_py_are_read_and_it_is_not_executed(tmp_path: Path) -> None:
    folder = project(tmp_path / "folder", {"setup.py": SETUP, "tests/test_a.py": ""})
    manifest, matrix = written(folder)
    assert (manifest.name, manifest.version) == ("old-ship", "2.5")
    assert (matrix.subject.name, matrix.subject.version) == ("old-ship", "2.5")
    assert manifest.setup is not None
    assert manifest.setup.pip == ("pytest>=8", "numpy", "hypothesis")
    assert inspect_project(folder).notes == ()


def test_setup_cfg_and_pyproject_count_more_than_setup_py(tmp_path: Path) -> None:
    """As setuptools has it."""
    files = {"setup.py": SETUP, "tests/test_a.py": "", "setup.cfg": "[metadata]\nversion = 3.0\n"}
    manifest, _ = written(project(tmp_path / "cfg", files))
    assert (manifest.name, manifest.version) == ("old-ship", "3.0")
    dynamic = '[project]\nname = "shipshape"\ndynamic = ["version"]\n'
    files = {"setup.py": SETUP, "tests/test_a.py": "", "pyproject.toml": dynamic}
    manifest, _ = written(project(tmp_path / "toml", files))
    assert (manifest.name, manifest.version) == ("shipshape", "2.5")


@pytest.mark.parametrize(
    "text",
    [
        "setup(name=NAME, version=read(), install_requires=read())",
        "setup(**config)",
        "if x:\n    setup(name='a')\nelse:\n    setup(name='b')",
        "print 'of Python 2'",
    ],
)
def test_what_setup_py_does_not_have_as_a_literal_is_said(tmp_path: Path, text: str) -> None:
    folder = project(tmp_path / "hull", {"setup.py": text, "tests/test_a.py": ""})
    manifest, _ = written(folder)
    assert (manifest.name, manifest.version) == ("hull", "0.0.0")
    notes = inspect_project(folder).notes
    said = "the name 'hull' is the folder's: setup.py, which is not executed, has no literal name"
    assert said in notes
    assert any("no version was found" in note for note in notes)
    is_computed = "install_requires" in text
    assert any("install_requires of setup.py" in note for note in notes) is is_computed


def test_a_broken_pyproject_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, {"pyproject.toml": "[project\n"})
    assert run_init(str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{tmp_path / 'pyproject.toml'}: cannot be read: Expected ']'")


def test_a_policy_or_another_matrix_makes_no_other_payload(tmp_path: Path) -> None:
    """Results of two payloads are no evidence of one build."""
    folder = project(tmp_path / "a", {"pyproject.toml": PLAIN, "tests/test_a.py": ""})
    written(folder)
    (tmp_path / "into").mkdir()
    pack = partial(FilePayloadArchives(FileDocuments()).pack, folder, into=tmp_path / "into")
    digest = pack().digest
    (folder / "gate.yaml").write_text("kind: ReleaseGate\n")
    (folder / "seatrial.yaml").write_text("kind: Matrix\n")
    assert pack().digest == digest
    (folder / "tests/test_a.py").write_text("# another\n")
    assert pack().digest != digest
