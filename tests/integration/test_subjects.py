"""Subjects as wheels: found, or built by the real git and pip."""

from __future__ import annotations

import hashlib
import subprocess
import textwrap
from pathlib import Path

import pytest

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.adapters.files.requirements import read_wheel
from orchestrator.adapters.files.subject_wheel import FileSubjects
from orchestrator.application.ports.wheels import WheelsError
from orchestrator.domain.matrix import GitSource, Subject
from tests.integration.wheel_making import wheel_bytes
from tests.unit.cli import in_process
from tests.unit.cli.fake_controller import FakeController
from tests.unit.cli.in_process import MATRIX, Cli

cli, controller = in_process.cli, in_process.controller  # the fixtures

NONE = Subject(name="payload", version="1")
SUBJECT = Subject(name="My.Lib", version="1.0", wheel="dist/*.whl")


def test_the_name_of_a_wheel_is_made_of_its_tags(tmp_path: Path) -> None:
    tags = "cp310-cp310-manylinux_2_17_x86_64\nTag: cp310-cp310-manylinux2014_x86_64"
    path = tmp_path / "x.whl"
    path.write_bytes(wheel_bytes("my_lib", "1.0", tag=tags))
    expected = "my_lib-1.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert read_wheel(path).filename == expected


def test_one_file_must_match_the_pattern(tmp_path: Path) -> None:
    with pytest.raises(WheelsError, match="must match one file; it matches 0"):
        FileSubjects().prepare(SUBJECT, base=tmp_path, into=tmp_path)
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "my_lib-1.0-py3-none-any.whl").write_bytes(wheel_bytes("my_lib", "1.0"))
    ready = FileSubjects().prepare(SUBJECT, base=tmp_path, into=tmp_path)
    assert ready is not None
    assert (ready.distribution, ready.version, ready.commit) == ("my_lib", "1.0", None)
    assert ready.digest == hashlib.sha256(ready.path.read_bytes()).hexdigest()
    (dist / "my_lib-2.0-py3-none-any.whl").write_bytes(wheel_bytes("my_lib", "2.0"))
    with pytest.raises(WheelsError, match=r"it matches 2: my_lib-1.0.*, my_lib-2.0"):
        FileSubjects().prepare(SUBJECT, base=tmp_path, into=tmp_path)
    assert FileSubjects().prepare(NONE, base=tmp_path, into=tmp_path) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_lib-1.0-py3-none-win_amd64", "its file name has the tag py3-none-win_amd64, and"),
        ("my_lib-1.0-cp313-cp313-any", "its file name has the tag cp313-cp313-any, and"),
        (
            "my_lib-1.0-py2.py3-none-any",
            "its file name has the tags py2-none-any, py3-none-any, and",
        ),
        ("my_lib-1.1-py3-none-any", "its file name says my-lib 1.1, and its METADATA my_lib 1.0"),
        ("my_lib", "its file name is not that of a wheel"),
    ],
)
def test_a_wheel_under_another_name_is_refused(tmp_path: Path, name: str, says: str) -> None:
    """As pip does: the name is what it goes by."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"{name}.whl").write_bytes(wheel_bytes("my_lib", "1.0"))
    with pytest.raises(WheelsError) as caught:
        FileSubjects().prepare(SUBJECT, base=tmp_path, into=tmp_path)
    assert f"{name}.whl cannot be installed: {says}" in str(caught.value)
    if "tag" in says:
        assert "its WHEEL file has the tag py3-none-any" in str(caught.value)
    assert "my_lib-1.0-py3-none-any.whl" in str(caught.value)


@pytest.mark.parametrize("name", ["my_lib-1.0.0-1-py3-none-any", "My.Lib-1-py3-none-any"])
def test_a_wheels_name_may_be_spelled_as_pip_reads_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"{name}.whl").write_bytes(wheel_bytes("my_lib", "1.0"))
    assert FileSubjects().prepare(SUBJECT, base=tmp_path, into=tmp_path) is not None


BACKEND = textwrap.dedent(
    """
    import os, time, zipfile

    def build_wheel(folder, config_settings=None, metadata_directory=None):
        name = "lib-1.0-py3-none-any.whl"
        when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
        files = {
            "lib.py": open("lib.py").read(),
            "lib-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: lib\\nVersion: 1.0\\n",
            "lib-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
            "lib-1.0.dist-info/RECORD": "",
        }
        with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
            for path, text in files.items():
                archive.writestr(zipfile.ZipInfo(path, when), text)
        return name
    """
)


def repository(source: Path) -> tuple[list[str], str]:
    """One that builds without a network, with a tag; the words of git, and its first commit."""
    source.mkdir()
    (source / "lib.py").write_text("X = 1\n")
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "x"],
        ["tag", "v1"],
    ):
        subprocess.run([*git, *words], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True).stdout
    return git, head.decode().strip()


def test_a_revision_is_built(tmp_path: Path) -> None:
    source = tmp_path / "source"
    git, head = repository(source)
    (source / "lib.py").write_text("X = 2\n")
    subprocess.run([*git, "commit", "-qam", "y"], check=True, capture_output=True)

    built = []
    for number, rev in enumerate(["v1", head, "main", "nowhere"]):
        subject = Subject(name="lib", version="1.0", git=GitSource(url=str(source), rev=rev))
        into = tmp_path / str(number)
        into.mkdir()
        if rev == "nowhere":
            with pytest.raises(WheelsError, match="has no commit, tag or branch 'nowhere'"):
                FileSubjects().prepare(subject, base=tmp_path, into=into)
            continue
        made = FileSubjects().prepare(subject, base=tmp_path, into=into)
        assert made is not None
        built.append(made)
    assert built[0].commit == head
    assert built[0].digest == built[1].digest != built[2].digest


def test_the_commit_of_a_branch_is_what_is_sent(
    tmp_path: Path, cli: Cli, controller: FakeController
) -> None:
    source = tmp_path / "source"
    _, head = repository(source)
    subject = f'{{name: lib, version: "1.0", git: {{url: "{source}", rev: main}}}}'
    text = MATRIX.replace('{name: torchbridge, version: "0.4.40"}', subject)
    baseline = f'baseline: {{git: {{url: "{source}", rev: v1}}}}\n'
    cli.matrix.write_text(text + baseline)
    assert cli("plan", str(cli.matrix)) == 0, cli.err
    [sent] = controller.sent("POST", "/api/v1/plan")
    matrix = FileDocuments().read_matrix(sent.json["matrix"], "sent")
    assert matrix.subject.git == GitSource(url=str(source), rev=head)
    assert matrix.baseline is not None
    assert matrix.baseline.git == GitSource(url=str(source), rev=head)
    assert f"main of {source} is {head}" in cli.err
    cli.matrix.write_text(text.replace("rev: main", f"rev: {head}"))
    assert cli("plan", str(cli.matrix)) == 0, cli.err
    assert controller.sent("POST", "/api/v1/plan")[1].json["matrix"] == cli.matrix.read_text()
