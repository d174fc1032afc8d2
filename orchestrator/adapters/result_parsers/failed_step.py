"""The dialect ``failed-step``: a text without results whose last line says that a step failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.adapters.result_parsers.text_lines import (
    StepFinder,
    failed_end,
    is_document,
    last_text,
)
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import ParsedEnd, ParsedItem, ParsedProblem, Provenance

_LIKELY = 0.05
"""Less than of any dialect that reads results."""
_CODE_FILE = re.compile(
    r"(?:[\w-]{1,60}[._-])?(?:exit[_-]?(?:code|status)|returncode|rc)(?:\.txt)?"
)
_BAD_CODE = re.compile(r"-?0{0,9}[1-9]\d{0,9}")


class FailedStep:
    """Reads the last line of a text that no other dialect knows (`Dialect`)."""

    name = "failed-step"
    version = 1
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return a low confidence if the last line tells of a failed step, else 0."""
        is_text = not is_document(artifact) and b"\0" not in artifact.head
        return _LIKELY if is_text and _failure(artifact) else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the failed end of a job that is named after the file."""
        failure = _failure(artifact)
        yield ParsedProblem("error", f"a step failed: {failure}")
        yield ParsedEnd(1, detail=failure)


def _failure(artifact: Artifact) -> str:
    text = last_text(artifact).strip()
    name = PurePosixPath(artifact.name).name.lower()
    if _CODE_FILE.fullmatch(name) and _BAD_CODE.fullmatch(text):
        return f"exit code {text}"
    return failed_end(text) or StepFinder().find(text.rpartition("\n")[2].strip())
