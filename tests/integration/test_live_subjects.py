"""What a branch and ``latest`` mean now: asked of the real git and pip."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.files.wheel_files import read_wheel
from orchestrator.adapters.subjects import GitAndPipSubjects
from orchestrator.application.ports.subjects import SubjectGoneError, SubjectUnreachableError
from tests.integration.test_subjects import BACKEND
from tests.integration.wheel_making import wheel_bytes

SUBJECTS = GitAndPipSubjects()


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a package whose wheel needs no tool from anywhere."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "lib.py").write_text("N = 1\n")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def test_a_branch_is_where_it_is_now(repository: Path, tmp_path: Path) -> None:
    url = f"file://{repository}"
    first = SUBJECTS.head(url, "main")
    assert first == git(repository, "rev-parse", "HEAD")
    (repository / "lib.py").write_text("N = 2\n")
    git(repository, "commit", "--quiet", "-am", "two")
    second = SUBJECTS.head(url, "main")
    assert second != first
    wheels = [SUBJECTS.build(url, commit, tmp_path / commit) for commit in (first, second)]
    assert [wheel.commit for wheel in wheels] == [first, second]
    assert wheels[0].digest != wheels[1].digest
    assert read_wheel(wheels[0].path).distribution == wheels[0].distribution == "lib"


def test_a_branch_that_is_gone_and_a_repository_that_is_away(repository: Path) -> None:
    with pytest.raises(SubjectGoneError, match=r"has no branch 'next' \(any more\)"):
        SUBJECTS.head(f"file://{repository}", "next")
    with pytest.raises(SubjectUnreachableError, match="did not answer"):
        SUBJECTS.head(f"file://{repository}-gone", "main")


def test_a_tag_or_half_a_name_is_no_branch(repository: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "branch", "team/main")
    for name in ("v1", "ain", "--upload-pack=x"):
        with pytest.raises(SubjectGoneError):
            SUBJECTS.head(f"file://{repository}", name)
    assert SUBJECTS.head(f"file://{repository}", "team/main")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A simple index in files, and a pip that knows no other."""
    folder = tmp_path / "simple" / "proof"
    folder.mkdir(parents=True)
    names = []
    for version in ("1.9", "1.10", "2.0rc1"):
        name = f"proof-{version}-py3-none-any.whl"
        (folder / name).write_bytes(wheel_bytes("proof", version))
        names.append(name)
    links = "".join(f'<a href="{name}">{name}</a>' for name in names)
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{folder.parent}")
    return folder


def test_the_newest_version_is_no_pre_release_unless_asked(index: Path) -> None:
    assert SUBJECTS.newest("proof", prereleases=False) == "1.10"
    assert SUBJECTS.newest("proof", prereleases=True) == "2.0rc1"


def test_a_package_that_is_not_there(index: Path) -> None:
    with pytest.raises(SubjectGoneError, match="has no version that is no pre-release of nothing"):
        SUBJECTS.newest("nothing", prereleases=False)
    with pytest.raises(SubjectGoneError, match="is no name of a package"):
        SUBJECTS.newest("--index-url=x", prereleases=False)


def test_an_index_that_is_away(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SubjectUnreachableError, match="did not answer for proof"):
        SUBJECTS.newest("proof", prereleases=False)
