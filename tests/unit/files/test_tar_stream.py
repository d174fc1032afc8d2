from __future__ import annotations

import gzip
import io
import tarfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.files import tar_stream
from orchestrator.adapters.files.tar_stream import MemberKind, open_tar, read_members, unpack_bundle
from orchestrator.application.ports.archives import ArchiveError, ArchiveLimits, BundleError
from tests.unit.files.tars import entry, link, pieces, tar

LIMITS = ArchiveLimits()
SMALL = ArchiveLimits(members=3, total_bytes=4096, file_bytes=1024, ratio=10)


def read(
    data: bytes, limits: ArchiveLimits = LIMITS, size: int = 7919
) -> list[tuple[str, MemberKind, bytes, str]]:
    return [
        (member.name, member.kind, b"".join(member.content), member.target)
        for member in read_members(pieces(data, size), limits)
    ]


LONG = "d" * 90 + "/" + "e" * 90 + "/\u00e9"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("size", [1, 511, 512, 100_000])
def test_an_honest_archive_is_read(form: int, size: int) -> None:
    data = tar(
        entry("./a", b"x" * 1025),
        entry("d", type=tarfile.DIRTYPE),
        entry(LONG, b"long"),
        link("l", LONG),
        entry("empty"),
        form=form,
    )
    expected = [
        ("a", MemberKind.FILE, b"x" * 1025, ""),
        ("d", MemberKind.FOLDER, b"", ""),
        (LONG, MemberKind.FILE, b"long", ""),
        ("l", MemberKind.LINK, b"", LONG),
        ("empty", MemberKind.FILE, b"", ""),
    ]
    assert read(data, size=size) == expected
    assert read(gzip.compress(data), size=size) == expected


def test_content_that_is_not_read_is_passed_over() -> None:
    data = tar(entry("a", b"x" * 10_000), entry("b", b"y"))
    assert [member.name for member in read_members(pieces(data), LIMITS)] == ["a", "b"]


def test_a_global_comment_as_git_writes_it_is_ignored() -> None:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "abc"}
    ) as archive:
        archive.addfile(*entry("a"))
    assert [name for name, *_ in read(out.getvalue())] == ["a"]


def with_global_path() -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "/etc/passwd"}
    ) as archive:
        archive.addfile(*entry("a"))
    return out.getvalue()


def claiming(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info, _ = entry("a", type=kind, size=size)
    return info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024


TRICKS = {
    "absolute": (tar(entry("/etc/passwd")), "leads out of the archive"),
    "upwards": (tar(entry("../x")), "leads out of the archive"),
    "upwards inside": (tar(entry("a/../../x")), "leads out of the archive"),
    "upwards at the end": (tar(entry("a/..", type=tarfile.DIRTYPE)), "leads out of the archive"),
    "line end in a name": (tar(entry("a\nb")), "not printable"),
    "escape in a name": (tar(entry("a\x1b[31m")), "not printable"),
    "no UTF-8": (tar(entry("a\udcff")), "not printable"),
    "long name": (tar(entry("a" * 1025)), "is too long"),
    "device": (tar(entry("a", type=tarfile.CHRTYPE)), "'a' is a device"),
    "block device": (tar(entry("a", type=tarfile.BLKTYPE)), "'a' is a device"),
    "pipe": (tar(entry("a", type=tarfile.FIFOTYPE)), "'a' is a pipe"),
    "sparse": (tar(entry("a", type=tarfile.GNUTYPE_SPARSE)), "'a' is a sparse file"),
    "sparse by record": (
        tar(entry("a", pax_headers={"GNU.sparse.name": "b"})),
        "is a sparse file",
    ),
    "unknown type": (tar(entry("a", type=b"Z")), "'a' is of an unknown type"),
    "global path": (with_global_path(), "names files in a global header"),
    "cut in a file": (tar(entry("a", b"x" * 5000))[:3000], "is cut off"),
    "cut in a header": (tar(entry("a"))[:100], "is cut off"),
    "more than there is": (claiming(10**9), "is cut off"),
    "negative": (claiming(-1), "negative size"),
    "huge header": (claiming(10**9, tarfile.XHDTYPE), "header of unreasonable size"),
    "huge long name": (claiming(10**9, tarfile.GNUTYPE_LONGNAME), "of unreasonable size"),
    "impossible size": (tar(entry("a", pax_headers={"size": "-5"})), "impossible size"),
    "no tar": (b"PK\3\4" + b"x" * 2000, "this is not a tar archive"),
    "text": (b"hello" * 200, "this is not a tar archive"),
    "broken gzip": (gzip.compress(tar(entry("a")))[:40] + b"\0" * 40, "damaged"),
    "cut gzip": (gzip.compress(tar(entry("a", b"x" * 99)))[:-20], "is cut off"),
    "gzip of another length": (gzip.compress(tar(entry("a")))[:-1] + b"\1", "damaged"),
}


@pytest.mark.parametrize(("data", "words"), TRICKS.values(), ids=TRICKS.keys())
def test_a_trick_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        read(data)


def test_too_many_members_are_refused() -> None:
    with pytest.raises(ArchiveError, match="more than 3 files"):
        read(tar(*(entry(str(n)) for n in range(4))), SMALL)


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(ArchiveError, match="'a' is larger than 1024 bytes"):
        read(tar(entry("a", b"x" * 1025)), SMALL)


def test_too_much_together_is_refused() -> None:
    many = ArchiveLimits(members=3, total_bytes=4096)
    with pytest.raises(ArchiveError, match="unpacks to more than 4096 bytes"):
        read(tar(*(entry(str(n), b"x" * 9000) for n in range(2))), many)


def test_a_bomb_is_stopped_by_its_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 8 * 1024 * 1024
    monkeypatch.setattr(tar_stream, "_FREE_OF_RATIO_BYTES", free)
    engine = zlib.compressobj(9, wbits=31)
    block = b"\0" * 1024 * 1024
    packed = [engine.compress(block) for _ in range(12)] + [engine.flush()]
    came = 0

    def count() -> None:
        nonlocal came
        for chunk in open_tar(packed, LIMITS):
            came += len(chunk)

    with pytest.raises(ArchiveError, match="more than 200 times its size"):
        count()
    assert 0 < came <= free


@given(st.binary(max_size=3000))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        members = read(data)
    except ArchiveError:
        return
    assert sum(len(content) for _, _, content, _ in members) <= len(data)


@given(st.integers(0, 2047), st.integers(0, 255))
def test_no_flipped_byte_leads_out(place: int, value: int) -> None:
    data = bytearray(tar(entry("a/b", b"x" * 600), link("l", "a/b")))
    data[place] = value
    try:
        names = [name for name, *_ in read(bytes(data))]
    except ArchiveError:
        return
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in names)


def test_a_bundle_is_flat_and_plain() -> None:
    data = tar(entry("./", type=tarfile.DIRTYPE), entry("./a.txt", b"1"), entry("b", b""))
    assert [(name, b"".join(chunks)) for name, chunks in unpack_bundle(pieces(data))] == [
        ("a.txt", b"1"),
        ("b", b""),
    ]
    assert list(unpack_bundle([])) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tar(entry("a/b")), "no plain file at the top"),
        (tar(link("a", "/etc/passwd")), "no plain file at the top"),
        (tar(entry("a"), link("b", "a", tarfile.LNKTYPE)), "no plain file at the top"),
        (tar(entry("a", type=tarfile.DIRTYPE)), "no plain file at the top"),
        (tar(entry("a"), entry("./a")), "occurs twice in the bundle"),
        (tar(entry("../a")), "leads out of the archive"),
        (tar(entry("a", b"x" * 5000))[:2000], "is cut off"),
    ],
)
def test_a_bundle_with_tricks_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        unpacked(data)


def unpacked(data: bytes) -> list[tuple[str, bytes]]:
    return [(name, b"".join(chunks)) for name, chunks in unpack_bundle(pieces(data))]
