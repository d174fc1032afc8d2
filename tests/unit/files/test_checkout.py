"""Which commit a payload is of, by its checkout and by the CI's variables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.files.archive import payload_files
from orchestrator.adapters.files.git_work_tree import checkout_of
from orchestrator.application.ports.archives import ArchiveError
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


@pytest.mark.parametrize("key", ["clean", "process", "lfs"])
@pytest.mark.parametrize("name", ["a.b=c", "lfs"])
def test_no_filter_of_a_checkout_is_run(checkout: Path, key: str, name: str) -> None:
    """A file that only a filter could compare is dirty; LFS's own extensions are programs, too."""
    mark = checkout.parent / f"{checkout.name}.mark"
    (checkout / ".gitattributes").write_text(f"file filter={name}\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "filtered")
    program = f"touch {mark}; cat"
    if key == "lfs":
        git(checkout, "config", "lfs.extension.x.clean", program)
        git(checkout, "config", f"filter.{name}.clean", "git-lfs clean -- %f")
    else:
        git(checkout, "config", f"filter.{name}.{key}", program)
        git(checkout, "config", f"filter.{name}.required", "true")
    assert not checkout_of(checkout).is_dirty
    (checkout / "tests" / "file").write_text("two\n")
    assert checkout_of(checkout).is_dirty
    assert not mark.exists()


def test_no_filter_of_a_submodule_is_run(checkout: Path, tmp_path_factory) -> None:
    outer = tmp_path_factory.mktemp("outer")
    mark = outer.parent / f"{outer.name}.mark"
    git(outer, "init", "-q", "-b", "main")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(checkout), "inner")
    git(outer, "commit", "-q", "-m", "first")
    git(outer / "inner", "config", "filter.x.clean", f"touch {mark}; cat")
    attributes = git(outer / "inner", "rev-parse", "--git-path", "info/attributes")
    (outer / "inner" / attributes).parent.mkdir(exist_ok=True)
    (outer / "inner" / attributes).write_text("file filter=x\n")
    assert not checkout_of(outer).is_dirty
    (outer / "inner" / "tests" / "file").write_text("two\n")
    assert checkout_of(outer).is_dirty
    assert not mark.exists()


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


PLANTS = {
    "fsmonitor": {"core.fsmonitor": "{program}"},
    "signature": {"log.showSignature": "true", "gpg.program": "{program}"},
    "hook": {"core.hooksPath": "{hooks}"},
    "fetch": {
        "remote.origin.url": "ext::{program}",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "protocol.ext.allow": "always",
    },
}
SIGNED = """\
tree {tree}
author Ann Author <ann@example.org> 1 +0000
committer Ann Author <ann@example.org> 1 +0000
gpgsig -----BEGIN PGP SIGNATURE-----
 it
 -----END PGP SIGNATURE-----

message
"""


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that a repository's configuration names; running it leaves `ran` beside it."""
    folder = tmp_path_factory.mktemp("planted")
    program = folder / "post-index-change"  # the name of the hook of `git status`
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran\nexit 1\n")
    program.chmod(0o755)
    return program


def plant(repository: Path, program: Path, *names: str) -> None:
    for name in names:
        for key, value in PLANTS[name].items():
            said = value.format(program=program, hooks=program.parent)
            git(repository, "config", key, said)


@pytest.mark.parametrize("name", PLANTS)
def test_reading_a_work_tree_runs_nothing_that_its_configuration_names(
    checkout: Path, program: Path, name: str
) -> None:
    text = SIGNED.format(tree=git(checkout, "rev-parse", "HEAD^{tree}"))
    (checkout / "signed").write_text(text)
    signed = git(checkout, "hash-object", "-t", "commit", "-w", "signed")
    git(checkout, "update-ref", "HEAD", signed)
    if name == "fetch":
        (checkout / ".git" / "objects" / signed[:2] / signed[2:]).unlink()
    plant(checkout, program, name)
    (checkout / "docs" / "file").touch()  # git status looks at it again, and writes its index
    assert checkout_of(checkout).sha == signed
    assert checkout_of(checkout).is_dirty
    if name != "fetch":
        assert payload_files(checkout) == [".gitignore", "docs/file", "signed", "tests/file"]
    assert not (program.parent / "ran").exists()


def test_a_repository_inside_the_work_tree_runs_nothing_either(
    checkout: Path, program: Path
) -> None:
    inner = checkout / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "file").touch()
    plant(inner, program, "fsmonitor", "hook")
    assert "inner/file" in payload_files(checkout)
    assert not (program.parent / "ran").exists()


def test_a_folder_of_the_work_tree_that_is_a_bare_repository_is_refused(
    checkout: Path, program: Path
) -> None:
    """A commit can hold such a folder, with a configuration; git would use it for the folder."""
    bare = checkout / "tests"
    git(checkout, "init", "-q", "--bare", "tests")
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.worktree", ".")
    plant(bare, program, "fsmonitor", "hook")
    assert checkout_of(bare) == Commit()
    with pytest.raises(ArchiveError, match="bare repository"):
        payload_files(bare)
    assert not (program.parent / "ran").exists()
