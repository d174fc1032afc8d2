"""What somebody hands in is unpacked safely, or refused in a sentence."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from orchestrator.adapters.files.ingest_upload import (
    FileRecordStore,
    FileUploadUnpacker,
    pack_artifacts,
)
from orchestrator.application.ingest_artifacts import flat_names
from orchestrator.application.ports.archives import ArchiveError, ArchiveLimits
from orchestrator.application.ports.uploads import IntakeError

LIMITS = ArchiveLimits(members=5, total_bytes=1_000_000, file_bytes=500_000, ratio=200)


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            if isinstance(member, tuple):
                entry = tarfile.TarInfo(member[0])
                entry.size = len(member[1])
                archive.addfile(entry, io.BytesIO(member[1]))
            else:
                archive.addfile(member)
    return out.getvalue()


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def zip_link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def handed(tmp_path: Path, body: bytes, name: str = "results.tar", limits: ArchiveLimits = LIMITS):
    """{name: (text that a dialect reads, remarks)} of what was taken."""
    path = tmp_path / "body"
    path.write_bytes(body)
    with FileUploadUnpacker(limits).open(path, name) as tray:
        for file in tray.files:
            raw = file.raw.read_bytes()
            assert file.digest == hashlib.sha256(raw).hexdigest()
            assert file.size_bytes == len(raw)
            assert file.artifact.path.parent == tray.folder
        return {f.name: (f.artifact.path.read_bytes(), f.remarks) for f in tray.files}


def refusal(
    tmp_path: Path, body: bytes, name: str = "results.tar", limits: ArchiveLimits = LIMITS
) -> str:
    with pytest.raises(IntakeError) as caught:
        handed(tmp_path, body, name, limits)
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert message.endswith("; nothing was stored")
    return message


FILES = (("a.txt", b"one"), ("sub/b.txt", b"two"))


@pytest.mark.parametrize(
    "body",
    [tar_of(*FILES), gzip.compress(tar_of(*FILES)), zip_of(*FILES)],
    ids=["tar", "gz", "zip"],
)
def test_archives_of_each_kind_hold_the_same(tmp_path, body):
    assert handed(tmp_path, body) == {"a.txt": (b"one", ()), "sub/b.txt": (b"two", ())}


def test_a_folder_that_has_everything_in_it_is_left_out_of_the_names(tmp_path):
    members = [("gcp/a.txt", b"one"), ("gcp/sub/b.txt", b"two")]
    assert set(handed(tmp_path, tar_of(*members))) == {"a.txt", "sub/b.txt"}


def test_a_single_file_keeps_its_name(tmp_path):
    assert handed(tmp_path, b"text", "logs/moe.txt") == {"moe.txt": (b"text", ())}


def test_a_packed_log_is_read_unpacked_and_kept_packed(tmp_path):
    packed = gzip.compress(b"a log")
    body = tar_of(("a.txt.gz", packed), ("b.txt", b""))
    assert handed(tmp_path, body)["a.txt.gz"] == (b"a log", ())
    assert handed(tmp_path, packed, "a.txt.gz") == {"a.txt.gz": (b"a log", ())}


def test_a_packed_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    packed = gzip.compress(os.urandom(400_000))[:200_000]
    text, remarks = handed(tmp_path, packed, "a.txt.gz")["a.txt.gz"]
    assert 0 < len(text) < 400_000
    assert f"read up to byte {len(text)}" in remarks[0]


@pytest.mark.parametrize(
    "inner", [zip_of(*FILES), gzip.compress(tar_of(*FILES))], ids=["zip", "gz"]
)
def test_an_archive_in_the_archive_is_kept_and_not_opened(tmp_path, inner):
    found = handed(tmp_path, tar_of(("inner", inner), ("a.txt", b"x")))
    assert found["inner"] == (inner, ("an archive within the archive is not opened",))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "it is empty"),
        (tar_of(), "there is no file in it"),
        (zip_of(), "there is no file in it"),
        (tar_of(("../a", b"x")), "leads out of the archive"),
        (zip_of(("../a", b"x")), "leads out of the archive"),
        (zip_of(("..\\a", b"x")), "leads out of the archive"),
        (zip_of(("/a", b"x")), "leads out of the archive"),
        (tar_of(("a\udcffb", b"x")), "not printable"),
        (tar_of(("a", b"x"), ("./a", b"y")), "occurs twice in the archive"),
        (tar_of(special("a", tarfile.SYMTYPE, "/etc/passwd")), "is a link to '/etc/passwd'"),
        (tar_of(("b", b"x"), special("a", tarfile.LNKTYPE, "b")), "is a hard link to 'b'"),
        (zip_of((zip_link("a"), b"/etc/passwd")), "is a link or a device"),
        (tar_of(*((f"{n}", b"x") for n in range(6))), "more than 5 files"),
        (zip_of(*((f"{n}", b"x") for n in range(6))), "more than 5 files"),
        (tar_of(("a", bytes(500_001))), "larger than 500000 bytes"),
        (tar_of(*((f"{n}", bytes(400_000)) for n in range(3))), "unpacks to more than"),
        (zip_of(*((f"{n}", bytes(400_000)) for n in range(3))), "unpacks to more than"),
        (gzip.compress(tar_of(("a", b"x")))[:-9], "cut off"),
        (zip_of(("a", b"x" * 99))[:60], "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "body",
)
def test_tricks_and_bombs_are_refused(tmp_path, body, said):
    assert said in refusal(tmp_path, body)


def test_a_packed_log_that_unpacks_to_too_much_is_refused(tmp_path):
    bomb = gzip.compress(bytes(2_000_000))
    assert "a.gz: it unpacks to more than" in refusal(tmp_path, tar_of(("a.gz", bomb)))


def test_a_zip_whose_directory_lies_about_a_size_is_refused_or_bounded(tmp_path):
    body = bytearray(zip_of(("a", bytes(3000))))
    place = body.rfind(b"PK\x01\x02")
    body[place + 24 : place + 28] = (10).to_bytes(4, "little")
    assert "cannot be unpacked" in refusal(tmp_path, bytes(body))


def test_an_encrypted_zip_is_refused(tmp_path):
    body = bytearray(zip_of(("a", b"x")))
    body[6] |= 1
    place = body.rfind(b"PK\x01\x02")
    body[place + 8] |= 1
    assert "is encrypted" in refusal(tmp_path, bytes(body))


def test_it_is_unpacked_where_it_is_told_to_and_nothing_is_left_behind(tmp_path):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    intake = FileUploadUnpacker(scratch=scratch)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(tar_of(*FILES))
    bad.write_bytes(tar_of(("a", b"x"), ("../b", b"x")))
    with intake.open(good, "good.tar") as tray:
        [folder] = scratch.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.raw.parent for file in tray.files} == {folder}
    with pytest.raises(IntakeError), intake.open(bad, "bad.tar"):
        pass
    assert list(scratch.iterdir()) == []


def test_a_folder_is_packed_so_that_the_same_again_is_the_same(tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_bytes(b"two")
    (folder / "sub" / "a.txt").write_bytes(b"one")
    first = pack_artifacts(folder, tmp_path).read_bytes()
    (folder / "b.txt").touch()
    assert pack_artifacts(folder, tmp_path).read_bytes() == first
    assert handed(tmp_path, first) == {"b.txt": (b"two", ()), "sub/a.txt": (b"one", ())}


def test_a_file_stays_where_it_is(tmp_path):
    file = tmp_path / "moe.txt"
    file.write_bytes(b"x")
    assert pack_artifacts(file, tmp_path / "nowhere") == file


def test_folders_with_links_or_nothing_are_refused(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ArchiveError, match="holds no file"):
        pack_artifacts(folder, tmp_path)
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="is a link: only files are taken"):
        pack_artifacts(folder, tmp_path)
    (folder / "link").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(ArchiveError, match="is a socket, pipe or device"):
        pack_artifacts(folder, tmp_path)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="neither a file nor a folder"):
        pack_artifacts(tmp_path / "pipe", tmp_path)
    unsendable = tmp_path / os.fsdecode(b"a\xff.txt")
    unsendable.write_bytes(b"x")
    with pytest.raises(ArchiveError, match="cannot be sent: give the file another one"):
        pack_artifacts(unsendable, tmp_path)


def test_there_is_one_ingest_yaml_in_any_case_of_letters(tmp_path):
    body = tmp_path / "body"
    body.write_bytes(tar_of(("a/Ingest.YAML", b"x"), ("a/b.txt", b"y")))
    with FileUploadUnpacker().open(body, "a.tar") as tray:
        assert tray.notes is not None
    said = refusal(tmp_path, tar_of(("a/ingest.yaml", b"x"), ("a/ingest.yml", b"y")))
    assert "ingest.yaml and ingest.yml are both notes" in said


def test_other_packings_are_told_apart_from_unknown_files(tmp_path):
    (_, remarks) = handed(tmp_path, lzma.compress(b"a log"), "a.log.xz")["a.log.xz"]
    assert "use .zip, .tar.gz or .gz" in remarks[0]


def test_flat_names_are_plain_and_different_in_any_case():
    names = ["a.txt", "A.TXT", "sub/a.txt", "sub-a.txt", "SUMMARY.md", "events.jsonl", "…", ".x"]
    flat = flat_names(names)
    assert flat == [
        "a.txt", "2-A.TXT", "sub-a.txt", "2-sub-a.txt", "raw-SUMMARY.md", "raw-events.jsonl",
        "artifact", "x",
    ]  # fmt: skip
    assert len({name.lower() for name in flat}) == len(flat)


def test_a_tape_gives_back_what_was_put(tmp_path):
    tape = FileRecordStore(tmp_path / "tape")
    places = [tape.put([number, "ü\ud800\x00", None]) for number in range(3)]
    assert tape.at(places[1]) == [1, "ü\ud800\x00", None]
    assert [place for place, _ in tape.records()] == places
    places.append(tape.put(["late"]))
    assert list(tape.records())[-1] == (places[-1], ["late"])
    tape.close()
