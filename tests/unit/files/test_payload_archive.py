from __future__ import annotations

import gzip
import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.adapters.files.archive import FilePayloadArchives
from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.application.ports.archives import ArchiveError, ArchiveLimits
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.domain.document_problems import InvalidDocumentError
from tests.unit.files.tars import MANIFEST, entry, link, payload, pieces, tar

ARCHIVES = FilePayloadArchives(FileDocuments())
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "p"
    (made / "suites").mkdir(parents=True)
    (made / "payload.toml").write_bytes(MANIFEST)
    (made / "suites" / "test_a.py").write_text("x = 1\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o750)
    return made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_folder_is_packed_and_read(folder: Path, into: Path) -> None:
    packed = ARCHIVES.pack(folder, into=into)
    assert packed.manifest.name == "p"
    assert packed.path.parent == into
    assert packed.size_bytes == packed.path.stat().st_size
    assert names(packed.path) == ["payload.toml", "run.sh", "suites/test_a.py"]
    assert ARCHIVES.read_file(packed.path) == packed.manifest
    assert list(into.iterdir()) == [packed.path]


def test_what_could_not_be_packed_leaves_nothing(
    folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("orchestrator.adapters.files.archive._write_tar", fails)
    with pytest.raises(ArchiveError, match="the disk is full"):
        ARCHIVES.pack(folder, into=into)
    assert list(into.iterdir()) == []


def test_equal_folders_have_equal_archives(folder: Path, into: Path, tmp_path: Path) -> None:
    first = ARCHIVES.pack(folder, into=into)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("suites", "run.sh", "payload.toml"):
        source = folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)  # type: ignore[operator]
    os.utime(copy / "run.sh", (1, 1))
    (copy / "payload.toml").chmod(0o600)
    assert ARCHIVES.pack(copy, into=into).digest == first.digest
    (copy / "run.sh").chmod(0o644)
    assert ARCHIVES.pack(copy, into=into).digest != first.digest


def test_members_have_fixed_owners_times_and_modes(folder: Path, into: Path) -> None:
    with tarfile.open(ARCHIVES.pack(folder, into=into).path) as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert {m.name: m.mode for m in members}["run.sh"] == 0o755
    assert {m.name: m.mode for m in members}["payload.toml"] == 0o644


def test_caches_and_virtual_environments_stay_here(folder: Path, into: Path) -> None:
    before = ARCHIVES.pack(folder, into=into).digest
    for name in (
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".git/x",
        "suites/v",
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "f").write_text("x")
    (folder / "suites" / "v" / "pyvenv.cfg").write_text("")
    (folder / "suites" / "a.pyc").write_text("")
    shutil.rmtree(folder / ".git")
    assert ARCHIVES.pack(folder, into=into).digest == before


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ([], ["docs/a/b.md", "docs/c.md", "run.sh", "suites/data.bin", "suites/test_a.py"]),
        (["docs"], ["run.sh", "suites/data.bin", "suites/test_a.py"]),
        (["docs/a/", "*.bin"], ["docs/c.md", "run.sh", "suites/test_a.py"]),
        (["suites/test_*.py", "doc"], ["docs/a/b.md", "docs/c.md", "run.sh", "suites/data.bin"]),
        (["*"], []),
    ],
)
def test_what_is_excluded_stays_here(
    folder: Path, into: Path, exclude: list[str], left: list[str]
) -> None:
    for name in ("docs/a/b.md", "docs/c.md", "suites/data.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    told = f"exclude = {exclude}\n".encode()
    (folder / "payload.toml").write_bytes(told + MANIFEST)
    assert names(ARCHIVES.pack(folder, into=into).path) == ["payload.toml", *left]


def test_tests_that_no_job_takes_or_that_exclude_keeps_out_are_read_from_the_archive(
    folder: Path, into: Path
) -> None:
    (folder / "tests").mkdir()
    for name in ("test_ok.py", "test_new.py", "gpu_data_test.py", "helper.py"):
        (folder / "tests" / name).touch()
    suite = b'[[job]]\nid = "s"\nkind = "suite"\npytest = ["tests/test_ok.py", "suites"]\n'
    told = b'exclude = ["*data*"]\nname = "p"\nversion = "1"\n'
    (folder / "payload.toml").write_bytes(told + suite)
    packed = ARCHIVES.pack(folder, into=into)
    read = ARCHIVES.read_file(packed.path)
    assert read == packed.manifest
    assert (read.untaken_tests, read.excluded_tests) == (
        ("tests/test_new.py",),
        ("tests/gpu_data_test.py",),
    )
    assert ARCHIVES.pack(packed.path, into=into).digest == packed.digest
    (folder / "payload.toml").write_bytes(b'untaken_tests = ["a"]\n' + told + suite)
    with pytest.raises(InvalidDocumentError, match="is no key of"):
        ARCHIVES.pack(folder, into=into)


@pytest.mark.parametrize("pattern", ["", "/etc", "../elsewhere", "docs/../../x"])
def test_only_what_is_below_the_root_can_be_excluded(
    folder: Path, into: Path, pattern: str
) -> None:
    (folder / "payload.toml").write_bytes(f"exclude = [{pattern!r}]\n".encode() + MANIFEST)
    with pytest.raises(InvalidDocumentError, match=r"exclude.*must name something below the root"):
        ARCHIVES.pack(folder, into=into)


def test_what_a_build_leaves_behind_is_not_shipped(folder: Path, into: Path) -> None:
    whole = names(ARCHIVES.pack(folder, into=into).path)
    for name in ("build/lib/p", "build/bdist.linux-x86_64", "src/p.egg-info", "build/data"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.py").write_text("")
    assert {*names(ARCHIVES.pack(folder, into=into).path)} == {*whole, "build/data/a.py"}


@needs_git
def test_a_work_tree_ships_what_git_would_keep(folder: Path, into: Path) -> None:
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    (folder / "a.log").write_text("ignored")
    (folder / "new.py").write_text("untracked")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.py").write_text("untracked, and a cache")
    (folder / "run.sh").unlink()
    (folder / '\u00e9 "q".txt').write_text("a name that git would quote")
    inner = folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "deep.py").write_text("a repository inside")
    assert names(ARCHIVES.pack(folder, into=into).path) == [
        "payload.toml", ".gitignore", "inner/deep.py", "new.py", "suites/test_a.py",
        '\u00e9 "q".txt',
    ]  # fmt: skip


@needs_git
def test_modules_that_are_imported_and_ignored_are_named(folder: Path, into: Path) -> None:
    """As a build makes them: `_version.py`, an extension, a folder of generated modules."""
    package = folder / "lib"
    for name in ("gen", "unused", "env", "data"):
        (package / name).mkdir(parents=True)
        (package / name / "one.py").write_text("")
    (package / "env" / "pyvenv.cfg").write_text("")
    (package / "data" / "one.py").unlink()
    (package / "__init__.py").write_text("from ._version import x\nfrom . import env, data\n")
    (package / "a.py").write_text("import lib.fast as f\nfrom lib.gen.one import y\n")
    (package / "b.py").write_text("import other  # print 2\nprint 2\n")
    for name in ("_version.py", "fast.cpython-311-x86_64-linux-gnu.so", "other.py", "made.py"):
        (package / name).write_text("")
    (folder / "_version.py").write_text("")
    (folder / "excluded").mkdir()
    (folder / "excluded" / "a.py").write_text("")
    made = ("_version.py", "*.so", "gen/", "unused/", "env/", "data/", "other.py", "made.py")
    (folder / ".gitignore").write_text("\n".join(made))
    assert ARCHIVES.pack(folder, into=into).unshipped == ()
    git(folder, "init", "-q")
    found = ("lib/_version.py", "lib/fast.cpython-311-x86_64-linux-gnu.so", "lib/gen/")
    assert ARCHIVES.pack(folder, into=into).unshipped == ("_version.py", *found)
    (folder / "payload.toml").write_bytes(b'exclude = ["*.so"]\n' + MANIFEST)
    git(folder, "add", "--force", "lib/_version.py")
    assert ARCHIVES.pack(folder, into=into).unshipped == ("_version.py", "lib/gen/")


def _written(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


@needs_git
def test_tests_that_are_ignored_beside_shipped_ones_are_named(folder: Path, into: Path) -> None:
    named = (
        "more/tests/local/deep/test_f.py",
        "suites/build/d_test.py",
        "suites/test_c.py",
        "suites/x_cases/test_b.py",
    )
    others = (
        ".tox/py/lib/test_a.py",
        "build/lib/suites/test_a.py",
        "more/build/lib/tests/test_a.py",
        "suites/.nox/test_a.py",
        "suites/env/lib/test_a.py",
        "suites/env/pyvenv.cfg",
        "suites/x_cases/helper.py",
        "suites/x_cases/test_excluded.py",
        "notes/test_alone.py",
    )
    ignored = ("*_cases", "build/", "test_c.py", "local/", ".tox", ".nox", "env/", "notes/")
    _written(folder, *named, *others, "more/tests/unit/test_e.py", "more/pyproject.toml")
    (folder / ".gitignore").write_text("\n".join(ignored))
    (folder / "payload.toml").write_bytes(b'exclude = ["*/test_excluded.py"]\n' + MANIFEST)
    assert ARCHIVES.pack(folder, into=into).unshipped_tests == ()
    git(folder, "init", "-q")
    assert ARCHIVES.pack(folder, into=into).unshipped_tests == named
    git(folder, "add", "--force", *named[1:])
    assert ARCHIVES.pack(folder, into=into).unshipped_tests == named[:1]
    _written(folder, "test_top.py")
    assert ARCHIVES.pack(folder, into=into).unshipped_tests == (named[0], "notes/test_alone.py")


@needs_git
def test_ignored_files_among_tests_are_named_unless_programs_leave_them(
    folder: Path, into: Path
) -> None:
    named = ("suites/cases/a.csv", "suites/data/more/b.npy", "suites/golden.json", "top.csv")
    others = (
        ".coverage", ".venv/a.csv", "build/a.csv", "data/a.csv", "htmlcov/a.html",
        "suites/.cache/a",
        "suites/__pycache__/test_a.cpython-312.pyc", "suites/env/a.csv", "suites/env/pyvenv.cfg",
        "suites/m.so", "suites/mine.egg-info/PKG-INFO", "suites/out.log", "suites/seen.csv",
        "suites/tmp/a.csv", "elsewhere/a.csv",
    )  # fmt: skip
    _written(folder, *named, *others, "suites/test_a.py", "elsewhere/a.py")
    ignored = ("*.csv", "*.json", "*.log", "*.so", "*.pyc", "*.egg-info", ".cache", ".coverage")
    folders = (".venv", "build", "/data", "htmlcov", "suites/data", "env", "tmp")
    (folder / ".gitignore").write_text("\n".join((*ignored, *folders)))
    (folder / "payload.toml").write_bytes(b'exclude = ["*/seen.csv"]\n' + MANIFEST)
    git(folder, "init", "-q")
    found = ("suites/cases/", "suites/data/", "suites/golden.json")
    assert ARCHIVES.pack(folder, into=into).unshipped_data == found
    git(folder, "add", "--force", "suites/golden.json")
    _written(folder, "test_top.py")
    assert ARCHIVES.pack(folder, into=into).unshipped_data == (*found[:2], "top.csv")


@needs_git
def test_a_folder_that_git_ignores_is_shipped_whole(folder: Path, into: Path) -> None:
    (folder.parent / ".gitignore").write_text("p/\n")
    git(folder.parent, "init", "-q")
    assert "suites/test_a.py" in names(ARCHIVES.pack(folder, into=into).path)


@needs_git
def test_a_repository_that_git_cannot_read_is_an_error(folder: Path, into: Path) -> None:
    (folder / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(ArchiveError, match="git cannot list it"):
        ARCHIVES.pack(folder, into=into)


def test_the_root_may_be_a_folder_above(folder: Path, into: Path, tmp_path: Path) -> None:
    inner = folder / "proof"
    inner.mkdir()
    (folder / "payload.toml").unlink()
    (inner / "payload.toml").write_bytes(b'root = ".."\n' + MANIFEST)
    packed = ARCHIVES.pack(inner, into=into)
    assert names(packed.path) == ["proof/payload.toml", "run.sh", "suites/test_a.py"]
    assert ARCHIVES.read_manifest(file_chunks(packed.path)).root == ".."


def test_a_root_below_is_refused(folder: Path, into: Path) -> None:
    (folder / "payload.toml").write_bytes(b'root = "suites"\n' + MANIFEST)
    with pytest.raises(ArchiveError, match="does not hold the file"):
        ARCHIVES.pack(folder, into=into)


def test_links_inside_stay_links(folder: Path, into: Path) -> None:
    (folder / "l").symlink_to("suites/test_a.py")
    (folder / "suites" / "up").symlink_to("../suites")
    (folder / "d").symlink_to("suites")
    with tarfile.open(ARCHIVES.pack(folder, into=into).path) as archive:
        links = {m.name: m.linkname for m in archive.getmembers() if m.issym()}
    assert links == {"l": "suites/test_a.py", "suites/up": "../suites", "d": "suites"}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("suites/l", "../../x"),
        ("l", "suites/../../x"),
        ("l", "here/../x"),
    ],
)
def test_a_link_that_leaves_the_payload_is_refused(
    folder: Path, into: Path, name: str, target: str
) -> None:
    (folder / "here").symlink_to(".")
    (folder / name).symlink_to(target)
    with pytest.raises(ArchiveError) as caught:
        ARCHIVES.pack(folder, into=into)
    assert f"the link {name!r} -> {target!r} leaves the payload" in str(caught.value)


def test_links_in_a_circle_are_refused(folder: Path, into: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(ArchiveError, match="leads in a circle"):
        ARCHIVES.pack(folder, into=into)


def test_sockets_and_pipes_are_refused(
    folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(ArchiveError, match="'pipe' is a socket, pipe or device"):
        ARCHIVES.pack(folder, into=into)
    (folder / "pipe").unlink()
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind("s")
        with pytest.raises(ArchiveError, match="'s' is a socket"):
            ARCHIVES.pack(folder, into=into)


def test_a_folder_that_is_too_large_names_its_largest_file(folder: Path, into: Path) -> None:
    (folder / "big.bin").write_bytes(b"x" * 5000)
    small = FilePayloadArchives(FileDocuments(), ArchiveLimits(total_bytes=4096))
    with pytest.raises(ArchiveError, match=r"the largest is 'big.bin' of 5000 bytes"):
        small.pack(folder, into=into)
    assert not list(into.iterdir())


def test_what_is_no_payload_is_refused(tmp_path: Path, into: Path) -> None:
    with pytest.raises(ArchiveError, match=r"has no payload.toml"):
        ARCHIVES.pack(into, into=into)
    with pytest.raises(ArchiveError, match=r"neither a folder nor a .tar.gz"):
        ARCHIVES.pack(tmp_path / "missing", into=into)
    with pytest.raises(ArchiveError, match="cannot be read: No such file"):
        ARCHIVES.pack(tmp_path / "missing.tar.gz", into=into)


def test_a_bad_manifest_is_an_invalid_document(folder: Path, into: Path) -> None:
    (folder / "payload.toml").write_text("name = 5\n")
    with pytest.raises(InvalidDocumentError, match=r"line 1, column 8: name: write it in quotes"):
        ARCHIVES.pack(folder, into=into)
    (folder / "payload.toml").write_bytes(b"name = '\xff'\n")
    with pytest.raises(ArchiveError, match="is not UTF-8: byte 8 is wrong"):
        ARCHIVES.pack(folder, into=into)


def test_an_archive_that_is_none_is_named(into: Path, tmp_path: Path) -> None:
    junk = tmp_path / "junk.tar.gz"
    junk.write_bytes(b"junk")
    with pytest.raises(ArchiveError, match=f"{junk}: the archive is cut off"):
        ARCHIVES.pack(junk, into=into)


def test_a_ready_archive_is_taken_as_it_is(folder: Path, into: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.tar.gz"
    subprocess.run(["tar", "-C", str(folder), "-czf", str(ready), "."], check=True)
    packed = ARCHIVES.pack(ready, into=into)
    assert (packed.path, packed.manifest.name) == (ready, "p")
    assert not list(into.iterdir())


def test_an_archive_of_the_folder_itself_is_explained(
    folder: Path, into: Path, tmp_path: Path
) -> None:
    ready = tmp_path / "ready.tgz"
    subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(ready), "p"], check=True)
    with pytest.raises(ArchiveError, match=r"pack what is in the folder, as in `tar -C FOLDER"):
        ARCHIVES.pack(ready, into=into)


TRICKS = {
    "link out": (payload(link("l", "../x")), "leaves the payload"),
    "absolute link": (payload(link("l", "/etc")), "leaves the payload"),
    "link by link": (payload(link("d", "."), link("l", "d/../x")), "leaves the payload"),
    "through a link": (
        payload(link("d", "sub"), entry("d/x")), "lies below 'd', which is no folder",
    ),
    "below a file": (payload(entry("f"), entry("f/x")), "lies below 'f', which is no folder"),
    "twice": (payload(entry("a"), entry("a")), "'a' occurs twice in the archive"),
    "file, then link": (payload(entry("a"), link("a", "b")), "occurs twice in the archive"),
    "hard link out": (
        payload(link("h", "/etc/passwd", tarfile.LNKTYPE)), "which is not in the archive",
    ),
    "escape in a target": (payload(link("l", "a\x1b")), "unprintable target"),
    "no manifest": (gzip.compress(tar(entry("a"))), "there is no payload.toml at the top"),
    "manifest is a link": (gzip.compress(tar(entry("a", MANIFEST), link("payload.toml", "a"))),
        "there is no payload.toml"),
    "another root": (gzip.compress(tar(entry("payload.toml", b'root = ".."\n' + MANIFEST))),
        "which is not the top of the archive"),
    "huge manifest": (
        gzip.compress(tar(entry("payload.toml", b"#" * 1024 * 1025))), "larger than 1048576 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "words"), TRICKS.values(), ids=TRICKS.keys())
def test_a_trick_is_refused(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=words):
        ARCHIVES.read_manifest(pieces(data))
    path = tmp_path / "upload"
    path.write_bytes(data)
    with pytest.raises(InvalidDocumentError, match=words):
        ARCHIVES.read_file(path)


def test_hard_links_inside_are_taken() -> None:
    data = payload(entry("a", b"x"), link("b", "a", tarfile.LNKTYPE))
    assert ARCHIVES.read_manifest(pieces(data)).name == "p"


HEAD = b'name = "p"\nversion = "1"\n'
SUITE = '\n[[job]]\nid = "extra"\nkind = "suite"\npytest = [{}]\n'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('"suits"', "'suits': the payload has no suits; did you mean 'suites'?"),
        (
            '"-q", "suites/test_b.py::TestA::test_x[a/b]"',
            (
                "'suites/test_b.py::TestA::test_x[a/b]': the payload has no suites/test_b.py;"
                " did you mean 'suites/test_a.py'?"
            ),
        ),
        (
            '"suites/t*.py"',
            (
                "'suites/t*.py': the payload has no suites/t*.py (pytest expands no pattern);"
                " did you mean 'suites/test_a.py'?"
            ),
        ),
        (
            '"--tb=short", "qqqq"',
            "'qqqq': the payload has no qqqq; valid: suites, suites/test_a.py",
        ),
    ],
)
def test_a_suite_that_names_no_file_of_the_payload_is_refused(
    folder: Path, into: Path, arguments: str, said: str
) -> None:
    file = folder / "payload.toml"
    file.write_bytes(HEAD + SUITE.format(arguments).encode())
    with pytest.raises(InvalidDocumentError) as refused:
        ARCHIVES.pack(folder, into=into)
    (problem,) = refused.value.problems
    assert (refused.value.name, problem.message) == (str(file), said)
    assert problem.path[2] == "pytest"
    assert problem.line == len(file.read_text().splitlines())
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        '"suites/"', '"."', '"./suites/test_a.py::test_x"', '"-x", "suites"', '"--pyargs", "mylib"',
        '"-k", "not slow", "suites"', '"-n", "4"', '"--ignore", "gone", "suites"', '"-m", "gone"',
        '"../elsewhere"', '"/opt/tests"', '"@arguments"', '"--deselect", "gone.py::t"', '"-q"',
        '"linked/test_c.py"',
    ],
)  # fmt: skip
def test_other_arguments_of_pytest_are_left_to_it(folder: Path, into: Path, arguments: str) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "test_c.py").write_text("x = 1\n")
    (folder / "linked").symlink_to("more")
    (folder / "payload.toml").write_bytes(HEAD + SUITE.format(arguments).encode())
    assert ARCHIVES.pack(folder, into=into).missing_tests == ()


def test_a_path_that_a_command_before_may_write_is_a_note(folder: Path, into: Path) -> None:
    made = b'\n[[job]]\nid = "make"\nkind = "demo"\ncommand = ["sh", "run.sh"]\n'
    suite = SUITE.format('"made/test_a.py"').encode()
    (folder / "payload.toml").write_bytes(HEAD + made + suite)
    (said,) = ARCHIVES.pack(folder, into=into).missing_tests
    assert "'made/test_a.py': the payload has no made/test_a.py" in said
    (folder / "payload.toml").write_bytes(HEAD + suite + made)
    with pytest.raises(InvalidDocumentError, match="the payload has no made"):
        ARCHIVES.pack(folder, into=into)
