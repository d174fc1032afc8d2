"""Reads the text of another program line by line, in bounded memory.

Text that a terminal would not show is removed: escape sequences, overwritten progress, and messages
of the program that fetched the text. Mojibake is repaired; everything else is unchanged.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import ParsedProblem

MESSAGE_LIMIT = 400
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}"
    r"(?:Error|Exception|Interrupt|Exit|Failure)(?:$|: )"
)
CROSSES = "❌✗✘❎"
"""Signs at the beginning of a line that reports a failure."""
_FAILURE = re.compile(
    rf"^\s{{0,12}}(?:[{CROSSES}]|\[(?:FAIL|FAILED|ERROR)\]"
    r"|(?:error|fatal|fatal error)\s?[:!]\s{0,4}(?![-+]?[\d.])\S"
    r"|(?:FAILED|FATAL|ERROR)\b(?!\s?[:=]\s{0,4}[-+]?[\d.])"
    r"|Segmentation fault|Aborted\b|Killed\b|Fatal Python error)"
)
_FAILURE_WORD = re.compile(r"^\s{0,12}error\s?[:!]\s{0,4}(?![-+]?[\d.])\S", re.IGNORECASE)
_DOCUMENTS = (".md", ".html", ".htm", ".xml", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".rst")


def is_error(line: str) -> bool:
    """Return whether a line names an exception or begins with a word or sign of failure."""
    return any(form.match(line) for form in (_FAILURE, _FAILURE_WORD, _EXCEPTION))


FAILED_TOOL = (
    r"\s{0,8}[^\s:]{1,80}: FAIL(?: \S)? (?:code [1-9]|in [\d.]{1,9} seconds)"  # tox
    r"|\s{0,8}evaluation failed :\("
    r"|ERROR:\s{1,4}(?:InvocationError for command |[^\s:]{1,80}: commands failed$)"  # tox 3
    r"|nox > (?:Session .{1,200} failed\b|\* [^\s:]{1,200}: failed$)"
)
"""Lines in which tox, nox or a similar program reports that a test run failed."""
_COMPOSED = re.compile(r"Attaching to \S|[\w.-]{1,100}[-_]\d{1,4} {1,40}\| ")
"""A line of docker compose."""
_FAILED_SERVICE = re.compile(
    r"(?P<said>[\w.-]{1,100}[-_]\d{1,4} exited with code (?:[1-9]\d?|1[01]\d|12[0-7]|139)\s{0,4}$)"
)
"""A line of docker compose about a failed service.

The exit codes of stopped services, such as 137 and 143, are no failures.
"""
_FAILED_STEP = re.compile(
    r"(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}Z? ?)?(?P<said>"
    r"g?make(?:\[\d{1,3}\])?: \*{3} "
    r"|##\[error\]|::error(?: [^:\n]{0,500})?::"  # GitHub's
    r"|Error: Process completed with exit code [1-9]"
    r"|ERROR: Job failed(?: \(system failure\))?(?::|$)"  # GitLab's
    r"|Finished: (?:FAILURE|UNSTABLE|ABORTED)$"  # Jenkins
    r"|ERROR: script returned exit code [1-9]\d{0,2}$"
    r"|Exited with code exit status [1-9]\d{0,2}$"  # CircleCI
    r"|The command \".{1,400}\" exited with [1-9]"  # Travis
    rf"|{FAILED_TOOL}"
    r"|npm (?:ERR!|error) (?:errno [1-9]|code (?:ELIFECYCLE|[1-9])|Test failed\.|Lifecycle script )"
    r"|(?:(?:error|\s?ELIFECYCLE)\s{1,4})?Command failed with (?:exit code [1-9]|signal)"
    r"|(?:error|\s?ELIFECYCLE)\s{1,4}Test failed\."  # yarn, pnpm
    r"|(?:py\.?test|python3? -m pytest) exited with (?:exit )?(?:code|status) -?[1-9]"
    r"|terminate called (?:after throwing an instance of |without an active exception)"  # C++
    r"|(?:\[ {0,9}[\d.]{1,20}\] )?(?:Memory cgroup out|Out) of memory: Killed process \d"  # Linux
    r"|(?:==\d{1,9}== ?)?(?:ERROR|SUMMARY|WARNING): \w{4,20}Sanitizer: \S"
    r"|(?:==\d{1,9}==|={9}) ERROR SUMMARY: [1-9]"  # valgrind, compute-sanitizer
    r"|Too long with no output \(exceeded "  # CircleCI
    r"|Done\. Your build exited with [1-9]"  # Travis
    r"|Error: The (?:operation was canceled\.|runner has received a shutdown signal)"  # GitHub's
    r"|(?:Error: )?The (?:job running on \S.{0,200} has exceeded the maximum execution time of "
    r"|action \S.{0,200} has timed out after )"
    r"|(?:Bash|PowerShell|Cmd\.exe) exited with code '[1-9]\d{0,2}'"  # Azure
    r"|slurmstepd\S{0,80}: error: (?:\*{3} JOB \d{1,12} .{0,200}\bCANCELLED\b"
    r"|\*{3} STEP .{1,200} DUE TO [A-Z]|Detected [1-9]\d{0,6} oom[_-]kill event)"
    r"|srun: error: .{1,200}: tasks? [\d,-]{1,80}: (?:Exited with exit code [1-9]|Killed"
    r"|Out Of Memory|.{1,40}\(core dumped\)"
    r"|(?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)$)"
    r"|(?:mpirun|mpiexec|orterun|prterun) (?:noticed that process rank .{1,200} exited on signal "
    r"|detected that one or more processes exited with non-zero )"
    r"|MPI_ABORT was invoked on rank |= {1,8}BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
    r"|torch\.distributed\.elastic\.multiprocessing\.errors\.(?:\w{1,40}\.)?ChildFailedError\b"
    r"|@{0,2}[\w.~+-]{0,80}//\S{1,200}:\S{1,200}\s{1,200}(?:\(cached\) )?"  # Bazel
    r"(?:FAILED|TIMEOUT|INCOMPLETE|NO STATUS)\b"
    r"|(?:ERROR|FAILED): Build did NOT complete successfully"
    r"|Executed \d{1,6} out of \d{1,6} tests?: .{0,200}\b[1-9]\d{0,6} fails?\b"
    r"|BUILD FAILED(?: in [\dhms ]{1,20})?$|> Task \S{1,200} FAILED$"  # Gradle, Ant
    r"|ninja: (?:build stopped|error): "
    r"|Error: command exited with code [1-9]"  # hatch
    r"|error: [Rr]ecipe `[^`]{1,200}` (?:failed |was terminated )"  # just
    r"|(?:task: )?Failed to run task \"[^\"]{1,200}\": "
    r"|command terminated with exit code [1-9]\d{0,2}$"  # kubectl
    r"|client_loop: send disconnect: |packet_write_wait: Connection to "  # OpenSSH
    r"|\S{0,3} ?Error: The command exited with status [1-9]"  # Buildkite
    r"|.{0,200} did not complete successfully: exit code: [1-9]"  # docker build
    r"|(?:FAIL|ERROR:?) Required test coverage of \S{1,20} not reached"
    r"|(?:ERROR: )?Coverage failure: total of "
    r"|(?:ERROR: )?Coverage for \w{1,20} \(\S{1,20}\) does not meet "  # nyc
    r"|Jest: .{1,80} coverage threshold for .{1,80} not met"
    r")"
)


_COVERAGE = re.compile(r"\bcoverage (?:of|failure|for|threshold)\b", re.IGNORECASE)


def is_coverage_limit(step: str) -> bool:
    """Return whether the message of a failed step names a coverage limit."""
    return _COVERAGE.search(step) is not None


_LAST_LINE = re.compile(
    r"\W{0,8}(?:(?:the )?"
    r"(?:pytest|python|tests?|jobs?|steps?|scripts?|commands?|builds?|final|overall)"
    r"(?: (?:finished|completed|ended|failed|exited))?(?: with)?[ :,-]{1,4})?"
    r"(?:process (?:completed|finished) with )?"
    r"(?:(?:exit|return)[ _-]?(?:code|status)(?: is)?[ :=]{1,4}|(?:exit|rc)\s?[:=]\s?)"
    r"-?[1-9]\d{0,10}(?: \(0x[0-9a-f]{1,8}\))?\W{0,8}"
    r"|\++ exit [1-9]\d{0,2}"  # set -x
    r"|(?:\w{1,40}\.)?CalledProcessError: .{1,300} returned non-zero exit status [1-9]\d{0,2}\.?"
    r"|(?:\w{1,40}\.)?CalledProcessError: .{1,300} died with <Signals\..{1,40}",
    re.IGNORECASE,
)
"""Last lines of a text that report a failed program; elsewhere they may report anything else."""


def failed_end(text: str) -> str:
    """Return the last line of a text if it reports a failing exit code; else an empty text."""
    line = text.rstrip().rpartition("\n")[2].strip()
    is_bad = _LAST_LINE.fullmatch(line) or _FAILED_SERVICE.match(line)
    return line if len(line) <= MESSAGE_LIMIT and is_bad else ""


@dataclass(slots=True)
class StepFinder:
    """Finds the lines where make, a CI system or a coverage limit says that a step failed."""

    _is_composed: bool = False
    """Whether a line of docker compose was read: only then can a line report a failed service."""

    def find(self, line: str) -> str:
        """Return the message of a failed step in the next line; empty if it has none."""
        self._is_composed = self._is_composed or _COMPOSED.match(line) is not None
        found = _FAILED_STEP.match(line)
        if found is None and self._is_composed:
            found = _FAILED_SERVICE.match(line)
        return line[found.start("said") :].strip()[:MESSAGE_LIMIT] if found else ""


@dataclass(slots=True)
class ErrorLines:
    """Watches lines for tracebacks and error words."""

    last: str = ""
    """The last error line; the caller clears it after reporting it."""
    step: str = ""
    """The first line that reports a failed step."""
    _steps: StepFinder = field(default_factory=StepFinder)
    _in_traceback: bool = False

    def see(self, line: str) -> None:
        """Note an error in the line."""
        step = self._steps.find(line)
        self.step = self.step or step
        if line.lstrip().startswith(_TRACEBACK):
            self._in_traceback = True
            self.last = self.last or "a traceback that does not end"
        elif self._in_traceback:
            self._see_in_traceback(line)
        elif is_error(line):
            self.last = line.strip()[:MESSAGE_LIMIT]

    def _see_in_traceback(self, line: str) -> None:
        """Read a line of a traceback: the first line without indentation names the exception."""
        if line[:1] not in ("", " ", "\t"):
            self._in_traceback = False
            self.last = line.strip()[:MESSAGE_LIMIT]

    def cut_off(self, what: str, *, torn: bool) -> str:
        """Return a message that begins with `what` and adds a torn last line and the last error."""
        words = [what]
        if torn:
            words.append("the text stops in the middle of a line")
        if self.last:
            words.append(f"the last trouble is: {self.last}")
        return "; ".join(words)


def is_torn(artifact: Artifact) -> bool:
    """Return whether the last line has no line end."""
    last = (artifact.tail or artifact.head)[-2:]
    return bool(last) and b"\n" not in last and b"\r" not in last


def is_document(artifact: Artifact) -> bool:
    """Return whether the file name ends like a document's, such as `.md`, instead of a log's."""
    return artifact.name.lower().endswith(_DOCUMENTS)


LINE_LIMIT = 65_536
"""Maximum characters of a line; the rest is dropped."""
CUT_MARK = " ...[cut]"
MENDED_LIMIT = 4_096
"""Mojibake is not repaired in lines with more characters."""
_CHUNK_BYTES = 65_536

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor, erasing
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"  # all other sequences, and a torn one
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"  # characters without width
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
    """Changes that were made to the text."""

    repaired: int = 0
    cut: int = 0
    undecodable: int = 0
    genuine: bool = False
    """Whether a character was read that mojibake never contains: the text was decoded correctly."""

    def statements(self) -> tuple[ParsedProblem, ...]:
        """Return the changes as problems, after the last line was read."""
        told = (
            (self.repaired, "mojibake repaired"),
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
    """Yield the lines without their line ends.

    Of a line that was overwritten by carriage returns only the last state is yielded; with `states`
    each state is yielded as a line. The encoding is UTF-8 unless a byte order mark declares UTF-16.
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
    """Return the first lines, for dialect detection; the last of them may be torn."""
    return list(_lines_of(artifact, artifact.head))


def tail_lines(artifact: Artifact) -> list[str]:
    """Return the last lines, for dialect detection; the first of them may be torn."""
    return list(_lines_of(artifact, artifact.tail or artifact.head))


def last_text(artifact: Artifact) -> str:
    """Return the last lines as one text."""
    return "\n".join(tail_lines(artifact))


def is_noise(line: str) -> bool:
    """Return whether the line is a connection message of gcloud or OpenSSH."""
    if not line.startswith(_NOISE_STARTS) or len(line) > _NOISE_LIMIT:
        return False
    return _NOISE.fullmatch(line.rstrip()) is not None


def encoding(head: bytes) -> str:
    """Return the codec for the byte order mark; UTF-8 without one."""
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
    """Return whether a CI system wrote a timestamp before each line."""
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
    """Yield lines, and whether each was too long to be kept complete."""
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
                state.returned = False  # the line was yielded at its carriage return
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
    """Whether the last character was a carriage return: then the next text overwrites the line."""

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
    """Return the line with mojibake repaired, unless the text is known to be decoded correctly."""
    notes.genuine = notes.genuine or any(map(_is_genuine, line))
    if notes.genuine or len(line) > MENDED_LIMIT:
        return line
    # Commands that read stored results parse no text.
    import ftfy  # noqa: PLC0415

    meant = ftfy.fix_encoding(line)
    if meant == line:
        return line
    notes.repaired += 1
    return meant


def _is_genuine(character: str) -> bool:
    """Return whether no eight-bit code page has the character: mojibake cannot contain it."""
    return "\u2600" <= character <= "\uf8fe" or "\ufe00" <= character != "\ufffd"


def _count(number: int) -> str:
    return f"{number} line" if number == 1 else f"{number} lines"
