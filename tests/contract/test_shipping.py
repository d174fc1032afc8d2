"""What shipping an archive to a real folder has to bear."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shlex
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.domain.machine import Shell
from runners.workspace import Archive, ShellWorkspace, WorkspaceError, agent_archive, pack
from tests.waiting import until

MIB = 1024 * 1024


def sent(data: bytes, size: int = 65536) -> Callable[[], Iterator[bytes]]:
    return lambda: (data[at : at + size] for at in range(0, len(data), size))


def shelf(base: Path, kind: str = "payloads") -> list[str]:
    folder = base / kind
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_what_arrives_is_what_was_packed(real: ShellWorkspace, base: Path) -> None:
    files = {
        "plain.txt": b"text\r\n",
        "deep/er/still/file.bin": bytes(range(256)) * 3,
        "empty": b"",
        "a b'c\"d$e`f|g;h*\n\U0001f6a2é": b"unusual",
        "long/" + "/".join(["n" * 60] * 5) + "/leaf.py": b"long",
    }
    archive = pack(files.items())
    real.put_archive("payloads", archive.digest, sent(archive.data, 1000))
    root = base / "payloads" / archive.digest
    found = {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    assert found == files
    assert (root / "plain.txt").stat().st_mode & 0o777 == 0o644
    assert shelf(base) == [archive.digest]


def tar_of(fill: Callable[[tarfile.TarFile], None], mode: str = "w") -> Archive:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        fill(archive)
    data = buffer.getvalue()
    return Archive(hashlib.sha256(data).hexdigest(), data)


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def test_a_zipped_archive_with_links_and_modes(real: ShellWorkspace, base: Path) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        archive.addfile(entry(".", tarfile.DIRTYPE, mode=0o500))
        archive.addfile(entry("./locked", tarfile.DIRTYPE, mode=0o500))
        run = entry("./locked/run.sh", mode=0o4755)
        run.size = 4
        archive.addfile(run, io.BytesIO(b"run\n"))
        archive.addfile(entry("link", tarfile.SYMTYPE, "locked/run.sh"))
        archive.addfile(entry("hard", tarfile.LNKTYPE, "./locked/run.sh"))

    archive = tar_of(fill, "w:gz")
    real.put_archive("payloads", archive.digest, sent(archive.data))
    root = base / "payloads" / archive.digest
    assert (root / "locked/run.sh").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(root / "link") == "locked/run.sh"
    assert (root / "hard").read_bytes() == b"run\n"


@pytest.mark.parametrize(
    "member",
    [
        entry("../out"),
        entry("/tmp/out"),
        entry("a/../../out"),
        entry("link", tarfile.SYMTYPE, "../../out"),
        entry("link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("link", tarfile.LNKTYPE, "../other"),
        entry("pipe", tarfile.FIFOTYPE),
        entry("device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.linkname}",
)
def test_what_leaves_its_folder_is_refused(
    real: ShellWorkspace, base: Path, member: tarfile.TarInfo
) -> None:
    archive = tar_of(lambda stream: stream.addfile(member))
    with pytest.raises(WorkspaceError, match=r"leads out of|neither a file"):
        real.put_archive("payloads", archive.digest, sent(archive.data))
    assert shelf(base) == []


def test_a_zip_of_several_parts_is_unpacked_whole(real: ShellWorkspace, base: Path) -> None:
    plain = pack([("a", os.urandom(5000)), ("b", os.urandom(400_000))]).data
    data = gzip.compress(plain[:7000]) + gzip.compress(plain[7000:]) + bytes(512)
    digest = hashlib.sha256(data).hexdigest()
    real.put_archive("payloads", digest, sent(data, 4096))
    assert (base / "payloads" / digest / "b").stat().st_size == 400_000


NO_ARCHIVES = {
    "nothing": b"",
    "text": b"no archive at all",
    "zipped text": gzip.compress(b"no archive at all" * 100),
    "half a zip": gzip.compress(pack([("a", os.urandom(5000))]).data)[:3000],
    "damaged zip": gzip.compress(b"x" * 9999)[:20] + b"damage",
    "half a file": pack([("a", bytes(5000))]).data[:3000],
    "damaged header": pack([("a", b"1"), ("b", b"2")]).data[:1500] + bytes(range(256)) * 40,
}


def test_what_is_no_archive_leaves_nothing(real: ShellWorkspace, base: Path) -> None:
    for what, data in NO_ARCHIVES.items():
        digest = hashlib.sha256(data).hexdigest()
        with pytest.raises(WorkspaceError, match="unpacked"):
            real.put_archive("payloads", digest, sent(data))
        assert shelf(base) == [], what


def test_a_cut_off_archive_leaves_nothing(real: ShellWorkspace, base: Path) -> None:
    archive = pack([("a", os.urandom(300_000)), ("b", os.urandom(300_000))])
    with pytest.raises(WorkspaceError, match="has the sha256"):
        real.put_archive("payloads", archive.digest, sent(archive.data[:400_000]))
    assert shelf(base) == []


def test_an_error_of_the_store_reaches_the_caller_and_the_next_upload_sweeps(
    real: ShellWorkspace, base: Path
) -> None:
    def broken() -> Iterator[bytes]:
        yield pack([("a", bytes(300_000))]).data[:200_000]
        raise LookupError("the blob is gone")

    with pytest.raises(LookupError, match="blob is gone"):
        real.put_archive("payloads", "a" * 64, broken)
    assert "a" * 64 not in shelf(base)
    whole = pack([("a", b"a")])
    real.put_archive("payloads", whole.digest, sent(whole.data))
    # Over SSH the receiver of the first one may still be about to remove its folder itself.
    until(lambda: shelf(base) == [whole.digest])


def test_two_uploads_at_once_are_harmless(real: ShellWorkspace, base: Path) -> None:
    archive = pack((f"{n % 7}/{n}", os.urandom(20_000)) for n in range(200))
    gate = threading.Barrier(3)
    answers: list[bool] = []

    def chunks() -> Iterator[bytes]:
        half = len(archive.data) // 2
        yield archive.data[:half]
        gate.wait(timeout=120)
        yield archive.data[half:]

    def put() -> None:
        answers.append(real.put_archive("payloads", archive.digest, chunks))

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True, True, True]
    assert shelf(base) == [archive.digest]
    assert len(list((base / "payloads" / archive.digest).rglob("*"))) == 207


def test_what_a_killed_upload_left_is_swept_and_a_running_one_is_not(
    real: ShellWorkspace, base: Path
) -> None:
    dead = base / "payloads" / ".incoming-dead"
    (dead / "inside").mkdir(parents=True)
    first, second = pack([("a", b"a")]), pack([("b", b"b")])

    def during() -> Iterator[bytes]:
        yield first.data[:100]
        until(lambda: len(shelf(base)) == 1 and not dead.exists())
        assert real.put_archive("payloads", second.digest, sent(second.data)) is True
        yield first.data[100:]

    assert real.put_archive("payloads", first.digest, during) is True
    assert shelf(base) == sorted([first.digest, second.digest])


@pytest.mark.needs_root
def test_a_full_disk_is_said_and_leaves_nothing(
    real: ShellWorkspace, shell: Shell, base: Path
) -> None:
    base.mkdir()
    place = shlex.quote(str(base))
    # By the shell itself, as a host has its own view of what is mounted.
    if shell.run(f"mount -t tmpfs -o size=2m none {place}").status != 0:
        pytest.skip("this system lets nobody mount a small file system")
    try:
        archive = pack([("big", bytes(40 * MIB))])
        with pytest.raises(WorkspaceError, match="No space left"):
            real.put_archive("payloads", archive.digest, sent(archive.data))
        assert shell.run(f"ls -A {place}/payloads").stdout == b""
    finally:
        real.disconnect()  # the agent's server works in the folder
        until(lambda: shell.run(f"umount {place}").status == 0)


# the archive itself


def test_the_same_files_make_the_same_archive() -> None:
    one = pack([("b", b"2"), ("a", b"1")])
    assert one == pack([("a", b"1"), ("b", b"2")])
    assert one.digest == hashlib.sha256(one.data).hexdigest()
    assert one != pack([("a", b"1"), ("b", b"3")])


def test_the_real_agent_is_packed_as_a_package() -> None:
    archive = agent_archive()
    with tarfile.open(fileobj=io.BytesIO(archive.data)) as stream:
        names = stream.getnames()
    assert "seatrial_agent/__init__.py" in names
    assert {name.split("/")[0] for name in names} == {"seatrial_agent", "on_path"}
    assert not [name for name in names if "__pycache__" in name]
