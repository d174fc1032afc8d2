"""What a branch and ``latest`` mean now: asked of the real git and pip."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from orchestrator.adapters.files.requirements import read_wheel
from orchestrator.adapters.git_repositories import Repositories
from orchestrator.adapters.guarded_http import addresses_of
from orchestrator.adapters.subject_resolver import BuildFolder, GitAndPipSubjects
from orchestrator.application.ports.wheels import SubjectGoneError, SubjectUnreachableError
from runners.shell.local import LocalShell
from tests.integration.test_subjects import BACKEND
from tests.integration.wheel_making import wheel_bytes

PUBLIC = "93.184.216.34"
WAY_OUT = "the operator can list the repository, or what its address begins with"


def subjects(folder: Path, **rules: Any) -> GitAndPipSubjects:
    """Those of a controller; with `reached`, of one that others can reach."""
    return GitAndPipSubjects(BuildFolder(LocalShell(), str(folder)), Repositories(**rules))


SUBJECTS = subjects(Path("/nonexistent"))


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
    wheels = [subjects(tmp_path).build(url, one, tmp_path / one) for one in (first, second)]
    assert [wheel.commit for wheel in wheels] == [first, second]
    assert wheels[0].digest != wheels[1].digest
    assert read_wheel(wheels[0].path).distribution == wheels[0].distribution == "lib"
    assert (
        wheels[0].built == f"on the controller's computer, as its own user, from {url} at {first}"
    )
    assert not list(tmp_path.glob("build-*"))


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


def test_git_runs_nothing_but_itself(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hook, no submodule, no program that an address names."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    git(inner, "commit", "--quiet", "--allow-empty", "-m", "one")
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "--quiet", "add", f"file://{inner}", "inner")
    (repository / "backend.py").write_text(f"import os\nassert not os.listdir('inner')\n{BACKEND}")
    git(repository, "commit", "--quiet", "-am", "two")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / "config").write_text(
        f"[core]\nhooksPath = {hooks}\n[submodule]\nrecurse = true\n[protocol]\nallow = always\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    url = f"file://{repository}"
    subjects(tmp_path).build(url, SUBJECTS.head(url, "main"), tmp_path / "wheels")
    for odd in (
        f"ext::touch {tmp_path}/hooked",
        f"ssh://-oProxyCommand=touch${{IFS}}{tmp_path}/x/y",
    ):
        with pytest.raises(SubjectUnreachableError):
            SUBJECTS.head(odd, "main")
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "x").exists()


def test_git_follows_no_redirect() -> None:
    with (
        listener() as (port, heard),
        redirecting(f"http://127.0.0.1:{port}/x") as url,
        pytest.raises(SubjectUnreachableError, match="did not answer"),
    ):
        SUBJECTS.head(f"{url}/repository", "main")
    assert heard == []


def test_who_can_be_reached_and_has_no_account_for_it_builds_nothing(tmp_path: Path) -> None:
    nobody = GitAndPipSubjects(None, Repositories(reached=True))
    url = "https://git.example/lib"
    assert "give the matrix that (`wheel:`)" in nobody.refusal(url)
    with pytest.raises(SubjectGoneError, match="by running its own code, and others can reach"):
        nobody.head(url, "main")
    with pytest.raises(SubjectGoneError, match="serve --local-jobs-as ACCOUNT"):
        nobody.build(url, "0" * 40, tmp_path)
    assert not list(tmp_path.iterdir())


NAMES = {
    "git.example": [PUBLIC],
    "two.example": [PUBLIC, "10.1.2.3"],
    "metadata.example": ["169.254.169.254"],
    "six.example": ["::ffff:192.168.1.1"],
}


def resolved(host: str, port: int) -> list[str]:
    return NAMES.get(host) or addresses_of(host, port)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://git.example/lib", ""),
        ("https://git.example:8443/lib", ""),
        ("https://two.example/lib", "two.example: 10.1.2.3 is a private address;"),
        ("https://metadata.example/lib", "is a link-local or cloud metadata address"),
        ("https://six.example/lib", "is a private address;"),
        ("https://127.0.0.1/lib", "127.0.0.1 is this computer's own address;"),
        ("https://localhost/lib", "is this computer's own address;"),
        ("https://2130706433/lib", "is this computer's own address;"),
        ("https://[::1]/lib", "::1 is this computer's own address;"),
        ("https://[fd00::1]:x/lib", "is not asked"),
        ("https:///lib", "takes https:// addresses;"),
        ("http://git.example/lib", "takes https:// addresses;"),
        ("git://git.example/lib", "takes https:// addresses;"),
        ("ssh://git@git.example/lib", "takes https:// addresses;"),
        ("git@git.example:lib", "takes https:// addresses;"),
        ("file:///etc", "takes https:// addresses;"),
        ("/etc", "takes https:// addresses;"),
        ("ext::sh -c x", "takes https:// addresses;"),
        ("file:///srv/git/lib", ""),
        ("file:///srv/git/../lib", "takes https:// addresses;"),
        ("file:///srv/git/%2e%2e/lib", "takes https:// addresses;"),
        ("file:///srv/gitx/lib", "takes https:// addresses;"),
        ("ssh://git@corp.internal/team/lib", ""),
        ("ssh://git@corp.internal/other/lib", "takes https:// addresses;"),
    ],
)
def test_who_can_be_reached_asks_public_servers_and_what_is_trusted(url: str, why: str) -> None:
    trusted = ("file:///srv/git", "ssh://git@corp.internal/team/")
    rules = {"reached": True, "trusted": trusted, "resolve": resolved}
    said = subjects(Path("/nonexistent"), **rules).refusal(url)
    assert why in said
    assert bool(said) == bool(why) == (WAY_OUT in said)


def test_what_was_looked_at_is_what_is_asked(tmp_path: Path) -> None:
    """A name that is public when it is looked at, and the controller's own a moment later."""
    answers = iter([[PUBLIC]])

    def turning(host: str, port: int) -> list[str]:
        return next(answers, ["127.0.0.1"])

    with listener() as (port, heard):
        rebound = subjects(tmp_path, reached=True, resolve=turning)
        with pytest.raises(SubjectUnreachableError, match="did not answer"):
            rebound.head(f"https://localhost:{port}/lib", "main")
    assert heard == []


@contextmanager
def listener() -> Iterator[tuple[int, list[object]]]:
    """A port of this computer, and who connected to it."""
    heard: list[object] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            heard.append(self.client_address)

    with answering(Handler) as port:
        yield port, heard


@contextmanager
def redirecting(target: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with answering(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def answering(handler: type[StreamRequestHandler]) -> Iterator[int]:
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


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
