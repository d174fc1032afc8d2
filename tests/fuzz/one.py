"""Fuzz one dialect, guided by coverage, until the time is over or it breaks.

``python -m tests.fuzz.one DIALECT SECONDS CORPUS_DIR SEED``. It breaks when reading raises anything
but UnreadableError, says something that is no statement, or takes longer than the limit for one
small input. What broke it is kept as ``crash-...`` in the corpus' folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["orchestrator.adapters.result_parsers"]):
    from orchestrator.adapters.result_parsers.registry import FileDialects

from orchestrator.application.ports.result_parsers import (
    HEAD_BYTES,
    TAIL_BYTES,
    Artifact,
    UnreadableError,
)
from orchestrator.domain.parsed_results import ParsedItem

LARGEST_BYTES = 20_000
ONE_INPUT_S = 20
STATEMENTS_A_BYTE = 1
"""No dialect says more than this much about an input, and a few things about the whole."""


def main() -> None:
    """Fuzz."""
    name, seconds, corpus, seed = *sys.argv[1:3], Path(sys.argv[3]), sys.argv[4]
    dialects = {dialect.name: dialect for dialect in FileDialects()._dialects}
    dialect = dialects[name]
    path = corpus / "input.bin"

    def once(data: bytes) -> None:
        path.write_bytes(data)
        artifact = Artifact("input.txt", path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])
        assert 0 <= dialect.match(artifact) <= 1
        said = 0
        try:
            for statement in dialect.read(artifact):
                assert isinstance(statement, ParsedItem), statement
                said += 1
        except UnreadableError as error:
            told = str(error)
            assert told
        assert said <= STATEMENTS_A_BYTE * len(data) + 50, said

    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={LARGEST_BYTES}",
        f"-timeout={ONE_INPUT_S}",
        "-rss_limit_mb=2048",
        f"-artifact_prefix={corpus}/",
        "-print_final_stats=1",
        "-verbosity=0",
        str(corpus / "corpus"),
    ]
    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
