"""What is shipped of the built-in payload: small, and the same every time."""

from __future__ import annotations

import gzip
import lzma

from orchestrator.adapters.files.archive import FilePayloadArchives, payload_files
from orchestrator.adapters.files.documents import FileDocuments
from tests.payload.collected import PAYLOAD

MOST_BYTES = 5 * 1024 * 1024 // 2
MOST_COMPRESSED_BYTES = 448 * 1024
SOURCE = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
"""As text is packed best."""


def test_the_archive_is_small_and_reproducible(tmp_path):
    archives = FilePayloadArchives(FileDocuments())
    first = archives.pack(PAYLOAD, into=tmp_path)
    plain = gzip.decompress(first.path.read_bytes())
    assert len(plain) <= MOST_BYTES
    assert len(lzma.compress(plain, filters=SOURCE)) <= MOST_COMPRESSED_BYTES
    first.path.unlink()
    assert archives.pack(PAYLOAD, into=tmp_path).digest == first.digest


def test_only_text_is_shipped():
    for name in payload_files(PAYLOAD):
        assert name.endswith((".py", ".toml", ".ini", ".md")), name
        (PAYLOAD / name).read_text("utf-8")
