"""What any line of a log may say beside results: version stamps, fallbacks, the machine.

A fallback that happens while something is used marks the job as degraded. A part that is found
missing when it is imported is only remarked: whatever needs it says so when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.adapters.dialects.environment_lines import EnvironmentLines, tells
from orchestrator.domain.parsed_results import (
    ParsedEnvironment,
    ParsedFallback,
    ParsedProblem,
    ParsedVersion,
    Said,
)

LOOKED_AT = 2_000
"""Characters of a line that are looked at: whoever has something to say says it early."""
SENTENCE_LIMIT = 500
KEPT = 200
"""Different remarks of one sort that are made of one artifact."""

FALLBACKS: tuple[str, ...] = (
    r"\b(?:falling|fell|falls)[ -]back\b",
    (
        r"\b(?:cuda|gpu|mps|xla|tpu|rocm|hip|xpu) (?:is )?(?:not available|unavailable)\b"
        r"[^\n]{0,80}\b(?:using|on|to) (?:the )?cpu\b"
    ),
    r"\b(?:using|running on) (?:the )?cpu instead\b",
)
"""Said where something is used, and does not run the way it should."""
ABSENCES: tuple[str, ...] = (
    r"\bnot (?:available|installed|found)\b[^\n]{0,80}\b(?:using|will use|fallback)\b",
    r"\bimport failed\b",
    r"\bcould not be imported\b",
)
"""Said where something is imported: a remark, since nothing has run yet."""

_NEGATED = re.compile(
    r"\b(?:no|without|never|not|instead of|rather than|avoids?) (?:any )?fall(?:ing)?[ -]?back",
    re.IGNORECASE,
)
_WARNING = re.compile(r"^\S[^\n]{0,500}?:\d{1,7}: (?:\w{0,60}Warning): ")
_LEVEL = re.compile(
    r"^(?:[\d:.,TZ/-]{4,32}\s){0,2}\W{0,3}(?:warning|warn|error|info|debug)\b\W{0,4}", re.IGNORECASE
)
_SOURCE = re.compile(
    r"^[>E]?\s*(?:warnings\.warn|warn|log(?:ger|ging)?\.\w{1,20}|print|raise \w{1,60})\("
)
_STAMP = re.compile(
    r"(?<![\w./-])([A-Za-z][\w.-]{1,40}) v(\d{1,4}(?:\.\d{1,6}){1,3}(?:(?:a|b|rc|\.dev|\.post)"
    r"\d{1,9})?(?:\+[A-Za-z0-9.]{1,40})?)(?![\w.-]*\w)"
)
_WANTED = re.compile(r"\b(?:requires?|needs?|since|until|upgrade to|at least|minimum|deprecated)\b")
_NOT_SUBJECTS = frozenset((
    "api", "aws", "cpython", "cuda", "cudnn", "docker", "driver", "gcc", "git", "glibc", "hip",
    "kernel", "linux", "nccl", "node", "npm", "nvidia", "phase", "pip", "pluggy", "pytest",
    "python", "pytorch", "rocm", "schema", "setuptools", "sm", "tensorrt", "torch", "torchvision",
    "torch_xla", "triton", "ubuntu", "uv", "version", "wheel", "xla",
))  # fmt: skip
_SPEAKING = ("back", "instead", "available", "installed", "found", "import")
"""Lines without any of these words, in small letters, are not read for fallbacks and absences."""
_DIGITS = re.compile(r"\d+")


class LogNotices:
    """Reads the lines of one artifact, in order; says each thing once."""

    def __init__(
        self,
        *,
        suite: bool = False,
        fallbacks: tuple[str, ...] = FALLBACKS,
        absences: tuple[str, ...] = ABSENCES,
    ) -> None:
        """Take what counts as a fallback.

        Args:
            suite: whether the lines are of a suite, where a fallback is one test's business, and
                a remark rather than a mark on the whole job.
            fallbacks: patterns of what is said where something falls back when it is used.
            absences: patterns of what is said where a part is missing.
        """
        self._suite = suite
        self._fallback = re.compile("|".join(fallbacks), re.IGNORECASE)
        self._absence = re.compile("|".join(absences), re.IGNORECASE)
        self._surroundings = EnvironmentLines()
        self._said: dict[str, set[str]] = {}

    def see(self, line: str) -> tuple[Said, ...]:
        """What the line says that no line before it said."""
        line = line[:LOOKED_AT]
        small = line.lower()
        speaks = any(word in small for word in _SPEAKING)
        is_stamped, is_telling = " v" in line, tells(small)
        if not (speaks or is_stamped or is_telling) or _SOURCE.match(line):
            return ()
        said: list[Said] = [*self._spoken(line)] if speaks else []
        said += self._stamps(line) if is_stamped else ()
        facts = self._surroundings.see(line) if is_telling else {}
        if facts:
            said.append(ParsedEnvironment(facts))
        return tuple(said)

    def _spoken(self, line: str) -> Iterator[Said]:
        sentence = _sentence(line)
        if self._fallback.search(sentence) and not _NEGATED.search(sentence):
            if self._is_new("fallback", _DIGITS.sub("0", sentence)):
                yield self._fell_back(sentence)
        elif self._absence.search(sentence) and self._is_new("absence", sentence):
            yield ParsedProblem("warning", f"it says: {sentence}")
        unused = _unused(line)
        if unused and self._is_new("unused", unused):
            yield ParsedProblem("warning", unused)

    def _fell_back(self, sentence: str) -> Said:
        if self._suite:
            return ParsedProblem("warning", f"a fallback: {sentence}")
        return ParsedFallback(sentence)

    def _stamps(self, line: str) -> Iterator[Said]:
        found = _STAMP.findall(line)
        if not found or _WANTED.search(line.lower()):
            return
        for name, version in found:
            if name.lower() in _NOT_SUBJECTS:
                continue
            if self._is_new("stamp", f"{name} {version}"):
                yield ParsedVersion(name, version)

    def _is_new(self, what: str, text: str) -> bool:
        known = self._said.setdefault(what, set())
        if text in known or len(known) >= KEPT:
            return False
        known.add(text)
        return True


def _sentence(line: str) -> str:
    """The line without the place in the source and the level that stand before what it says."""
    said = _LEVEL.sub("", _WARNING.sub("", line.strip(), count=1), count=1)
    return said.strip()[:SENTENCE_LIMIT]


_AVAILABLE = re.compile(r"'(\w{1,60})_available': True")


def _unused(line: str) -> str:
    """A printed dictionary in which something is available and not used."""
    for match in _AVAILABLE.finditer(line):
        name = match.group(1)
        if f"'using_{name}': False" in line:
            return f"it says that {name} is available, and that it is not used"
    return ""
