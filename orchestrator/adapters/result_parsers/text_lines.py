"""The lines of a text that some other program wrote, in bounded memory.

What a terminal would not show is not in them: escape sequences, overwritten progress, the words
of the program that fetched the text. Nothing else is changed, but for mojibake, where it is one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import ftfy

from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import ParsedProblem

MESSAGE_LIMIT = 400
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}"
    r"(?:Error|Exception|Interrupt|Exit|Failure)(?:$|: )"
)
_FAILURE = re.compile(
    r"^\s{0,12}(?:❌|✗|✘|\[(?:FAIL|FAILED|ERROR)\]"
    r"|(?:error|fatal|fatal error)\s?[:!]\s{0,4}(?![-+]?[\d.])\S"
    r"|(?:FAILED|FATAL|ERROR)\b(?!\s?[:=]\s{0,4}[-+]?[\d.])"
    r"|Segmentation fault|Aborted\b|Killed\b|Fatal Python error)"
)
_FAILURE_WORD = re.compile(r"^\s{0,12}error\s?[:!]\s{0,4}(?![-+]?[\d.])\S", re.IGNORECASE)
_DOCUMENTS = (".md", ".html", ".htm", ".xml", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".rst")


@dataclass(slots=True)
class ErrorLines:
    """Watches lines for tracebacks and words of failure."""

    last: str = ""
    """The last error line; the caller clears it once reported."""
    _in_traceback: bool = False

    def see(self, line: str) -> None:
        """Note what went wrong."""
        if line.lstrip().startswith(_TRACEBACK):
            self._in_traceback = True
            self.last = self.last or "a traceback that does not end"
        elif self._in_traceback:
            self._see_in_traceback(line)
        elif _FAILURE.match(line) or _FAILURE_WORD.match(line) or _EXCEPTION.match(line):
            self.last = line.strip()[:MESSAGE_LIMIT]

    def _see_in_traceback(self, line: str) -> None:
        """The first line that is not indented names the exception."""
        if line[:1] not in ("", " ", "\t"):
            self._in_traceback = False
            self.last = line.strip()[:MESSAGE_LIMIT]

    def cut_off(self, what: str, *, torn: bool) -> str:
        """One sentence about an end that is not there."""
        words = [what]
        if torn:
            words.append("the text stops in the middle of a line")
        if self.last:
            words.append(f"the last trouble is: {self.last}")
        return "; ".join(words)


def is_torn(artifact: Artifact) -> bool:
    """Whether the text stops within a line."""
    last = (artifact.tail or artifact.head)[-2:]
    return bool(last) and b"\n" not in last and b"\r" not in last


def is_document(artifact: Artifact) -> bool:
    """Whether the name says that it is a document, and no output of a program."""
    return artifact.name.lower().endswith(_DOCUMENTS)


LINE_LIMIT = 65_536
"""Characters of a line; the rest of a longer one is dropped."""
CUT_MARK = " ...[cut]"
MENDED_LIMIT = 4_096
"""Longer lines are left as they are: nobody reads them."""
_CHUNK_BYTES = 65_536

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor, erasing
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"  # everything else, and one that was torn
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"  # what has no width
)
_BREAKS = re.compile(r"[\r\n]")
_NOISE = re.compile(
    r"(?:Warning: Permanently added .+ to the list of known hosts\.?"
    r"|SSH key found in project metadata; not updating instance\.?"
    r"|Using (?:ssh|scp) batch size of .+"
    r"|(?:SSH|SCP): Attempting to connect to worker .+"
    r"|(?:Updating|Waiting for) (?:instance|project|SSH) .*(?:metadata|propagate).*"
    r"|Updated \[https://[^\]]*\]\.?"
    r"|External IP address was not found; defaulting to using IAP tunneling\.?"
    r"|Existing host keys found in .+"
    r"|No zone specified\. Using zone .+"
    r"|Writing \d+ keys? to .+"
    r"|Pseudo-terminal will not be allocated because stdin is not a terminal\.?"
    r"|Connection to \S+ closed(?: by remote host)?\.?"
    r"|WARNING: The private SSH key file for gcloud does not exist\.?)"
)
_NOISE_STARTS = (
    "Connection to ", "Existing host", "External IP", "No zone", "Pseudo-", "SCP: ", "SSH",
    "Updat", "Using s", "WARNING: The private", "Waiting for", "Warning: Perm", "Writing ",
)  # fmt: skip
_NOISE_LIMIT = 500
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z ?")
_STAMPED_LINES = 3


@dataclass(slots=True)
class Notes:
    """What was done to the text on the way."""

    mended: int = 0
    cut: int = 0
    undecodable: int = 0
    genuine: bool = False
    """A character was seen that mojibake never has: the text was decoded rightly."""

    def said(self) -> tuple[ParsedProblem, ...]:
        """The same for a person, after the last line was read."""
        told = (
            (self.mended, "mojibake mended"),
            (self.undecodable, "bytes that are no text replaced"),
            (self.cut, f"cut after {LINE_LIMIT} characters"),
        )
        return tuple(
            ParsedProblem("warning", f"{words} in {_count(number)}")
            for number, words in told
            if number
        )


def text_lines(
    artifact: Artifact, *, notes: Notes | None = None, states: bool = False
) -> Iterator[str]:
    """The lines, without their ends.

    Of a line that was overwritten by carriage returns the last state is told; with `states` every
    state, each as a line of its own. The encoding is UTF-8 unless a byte order mark says UTF-16.
    """
    notes = notes if notes is not None else Notes()
    raw = _broken(_decoded(artifact), states=states)
    is_stamped = _is_stamped(artifact)
    for line, is_cut in raw:
        clean = _cleaned(line, notes)
        clean = _STAMP.sub("", clean, count=1) if is_stamped else clean
        if is_cut:
            notes.cut += 1
            clean += CUT_MARK
        if not is_noise(clean):
            yield clean


def head_lines(artifact: Artifact) -> list[str]:
    """The first lines, for a first look; the last of them may be torn."""
    return list(_lines_of(artifact, artifact.head))


def tail_lines(artifact: Artifact) -> list[str]:
    """The last lines, for a first look; the first of them may be torn."""
    return list(_lines_of(artifact, artifact.tail or artifact.head))


def is_noise(line: str) -> bool:
    """Whether it is what gcloud and OpenSSH say while they connect, and nothing of the log."""
    if not line.startswith(_NOISE_STARTS) or len(line) > _NOISE_LIMIT:
        return False
    return _NOISE.fullmatch(line.rstrip()) is not None


def encoding(head: bytes) -> str:
    """The codec that the byte order mark, or its absence, asks for."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def _lines_of(artifact: Artifact, part: bytes) -> Iterator[str]:
    is_stamped = _is_stamped(artifact)
    for line in _first_look(artifact, part):
        clean = _STAMP.sub("", line, count=1) if is_stamped else line
        if not is_noise(clean):
            yield clean


def _first_look(artifact: Artifact, part: bytes) -> Iterator[str]:
    codec = encoding(artifact.head)
    if codec == "utf-16" and not part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        codec = "utf-16-le" if artifact.head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
        part = part[(artifact.size_bytes - len(part)) % 2 :]
    for line, _ in _broken([part.decode(codec, errors="replace")], states=False):
        yield _ESCAPES.sub("", line)


def _is_stamped(artifact: Artifact) -> bool:
    """Whether a CI system wrote the time before each line."""
    lines = (line for line in _first_look(artifact, artifact.head[:4_096]) if line.strip())
    first = [line for _, line in zip(range(_STAMPED_LINES), lines, strict=False)]
    return len(first) == _STAMPED_LINES and all(_STAMP.match(line) for line in first)


def _decoded(artifact: Artifact) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding(artifact.head))(errors="replace")
    with artifact.path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _broken(chunks: Iterable[str], *, states: bool) -> Iterator[tuple[str, bool]]:
    """Lines, and whether each was too long to be kept whole."""
    state = _State()
    for chunk in chunks:
        start = 0
        for found in _BREAKS.finditer(chunk):
            state.add(chunk[start : found.start()])
            start = found.end()
            if found.group() == "\r":
                state.returned = True
                if not states:
                    continue
            elif state.returned and states and not state.text:
                state.returned = False  # the line was told at its carriage return
                continue
            yield state.take()
            state.returned = found.group() == "\r"
        state.add(chunk[start:])
    if state.text:
        yield state.take()


@dataclass(slots=True)
class _State:
    """The line that is being read."""

    text: str = ""
    is_cut: bool = False
    returned: bool = False
    """A carriage return came last: what comes next overwrites."""

    def add(self, piece: str) -> None:
        if not piece:
            return
        if self.returned:
            self.text, self.is_cut, self.returned = "", False, False
        room = LINE_LIMIT - len(self.text)
        self.is_cut = self.is_cut or len(piece) > room
        self.text += piece[:room]

    def take(self) -> tuple[str, bool]:
        line = self.text, self.is_cut
        self.text, self.is_cut, self.returned = "", False, False
        return line


def _cleaned(line: str, notes: Notes) -> str:
    clean = _ESCAPES.sub("", line)
    if clean.isascii():
        return clean
    if "\ufffd" in clean:
        notes.undecodable += 1
    return _mended(clean, notes)


def _mended(line: str, notes: Notes) -> str:
    """The line as it was meant, unless the text was decoded rightly elsewhere."""
    notes.genuine = notes.genuine or any(map(_is_genuine, line))
    if notes.genuine or len(line) > MENDED_LIMIT:
        return line
    meant = ftfy.fix_encoding(line)
    if meant == line:
        return line
    notes.mended += 1
    return meant


def _is_genuine(character: str) -> bool:
    """Whether no eight-bit code page has it, so that no misreading makes it."""
    return "\u2600" <= character <= "\uf8fe" or "\ufe00" <= character != "\ufffd"


def _count(number: int) -> str:
    return f"{number} line" if number == 1 else f"{number} lines"
