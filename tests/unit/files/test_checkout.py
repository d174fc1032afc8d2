"""Which commit a payload is of, by its checkout and by the CI's variables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.files.checkout import checkout_of
from orchestrator.config import ci_commit
from orchestrator.domain.commit import Commit, completed

OWNER = ("-c", "user.name=Ann Author", "-c", "user.email=ann@example.org")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ("git", "-C", str(folder), *OWNER, *words), check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "topic")
    (tmp_path / ".gitignore").write_text("built/\n")
    for folder in ("tests", "docs", "built"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_folder_of_a_checkout_is_of_its_commit(checkout: Path) -> None:
    sha = git(checkout, "rev-parse", "HEAD")
    known = Commit(sha=sha, branch="topic", author="Ann Author")
    assert checkout_of(checkout / "tests") == known
    (checkout / "docs" / "file").write_text("two\n")
    assert checkout_of(checkout / "tests") == known, "what is not shipped changes nothing"
    (checkout / "tests" / "new").write_text("\n")
    found = checkout_of(checkout / "tests")
    assert (found.sha, found.is_dirty, found.short) == (sha, True, f"{sha[:12]}+")
    git(checkout, "checkout", "-q", "--detach")
    assert checkout_of(checkout / "tests").branch == ""


def test_what_git_does_not_know_is_of_no_commit(checkout: Path, tmp_path: Path) -> None:
    assert checkout_of(checkout / "built") == Commit()
    assert checkout_of(checkout / "absent") == Commit()
    bare = tmp_path / "bare"
    bare.mkdir()
    git(bare, "init", "-q")
    assert checkout_of(bare) == Commit(), "it has no commit yet"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, Commit()),
        (
            {"GITHUB_SHA": "A" * 40, "GITHUB_REF_NAME": "7/merge", "GITHUB_HEAD_REF": "topic",
             "GITHUB_ACTOR": "bo"},
            Commit(sha="a" * 40, branch="topic", author="bo"),
        ),
        (
            {"CI_COMMIT_SHA": "b" * 40, "CI_COMMIT_REF_NAME": "main",
             "CI_COMMIT_AUTHOR": "Bo <bo@example.org>"},
            Commit(sha="b" * 40, branch="main", author="Bo"),
        ),
        ({"GIT_COMMIT": "HEAD", "GIT_BRANCH": "main"}, Commit(branch="main")),
    ],
)  # fmt: skip
def test_the_variables_of_a_ci(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: Commit
) -> None:
    for name in ("GITHUB_SHA", "GITHUB_REF_NAME", "GITHUB_HEAD_REF", "GITHUB_ACTOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ci_commit() == said


def test_a_ci_completes_its_own_checkout_only() -> None:
    detached, ci = Commit(sha="a" * 40, author="Ann"), Commit(sha="a" * 40, branch="topic")
    assert completed(detached, ci) == Commit(sha="a" * 40, branch="topic", author="Ann")
    other = Commit(sha="b" * 40, branch="topic", author="bo")
    assert completed(detached, other) == detached
    assert completed(Commit(), other) == other
