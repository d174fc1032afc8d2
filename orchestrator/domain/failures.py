"""Parses a failure into exception, frame and message, and classifies its origin.

It reads the three forms of pytest's tracebacks (long, short, native), or only the message if there
is no traceback.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

_READ = 64 * 1024
"""Maximum number of characters that are parsed, from the end of a traceback."""
_LINE = 2_000
_MESSAGE_LINES = 2
EXPECTATIONS = frozenset({"AssertionError", "Failed"})
"""Exceptions of a test's failed expectations, which point to the product."""


class FailureClass(StrEnum):
    """Probable origin of a failure; a hint only."""

    PRODUCT = "product"
    TEST = "test"
    INFRA = "infra"
    ENVIRONMENT = "environment"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """The probable origin in words for a person."""
        return _CAUSE_WORDS[self]


_CAUSE_WORDS = {
    FailureClass.PRODUCT: "the product",
    FailureClass.TEST: "the test",
    FailureClass.INFRA: "the machine or the network",
    FailureClass.ENVIRONMENT: "what is installed on the machine",
    FailureClass.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Raised:
    """A raised exception with its message and frame."""

    exception: str
    """Exception class without its module; ``crashed`` or ``hung`` if none was raised."""
    message: str
    """The message in one line."""
    frame: str
    """``package.module.function`` of the product's last frame, or else of the tests' last frame."""
    is_own: bool
    """Whether the frame belongs to the product."""
    causes: tuple[str, ...] = ()
    """Exception classes of the chain that led to it, the first one first."""


@dataclass(frozen=True, slots=True)
class _Frame:
    path: str
    function: str


_CHAINED = re.compile(
    r"^(?:E\s+)?(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)\s*$"
)
_CAPTURED = re.compile(r"^-{3,200} Captured \w{1,20} \w{1,20} -{3,200}$", re.MULTILINE)
"""Heading of captured output, which is not part of the traceback."""
_SHORT = re.compile(r"^(?P<path>[^\s:][^:\n]*):\d+: in (?P<name>\S+)")
_LONG_END = re.compile(r"^(?P<path>[^\s:>][^:\n]*):\d+: ?(?P<raised>[\w.]*)\s*$")
_LONG_DEF = re.compile(r"^>?\s*(?:async )?def (?P<name>\w+)\s*\(")
_LAMBDA = re.compile(r"\blambda\b")
LAMBDA = "<lambda>"
_ENTRY = re.compile(r"^(?:_ )+_?\s*$")
_NATIVE = re.compile(r'^\s*File "(?P<path>[^"]+)", line \d+, in (?P<name>\S+)')
_ERROR_LINE = re.compile(r"^E\s+(?P<message>\S.*)$")
_NAMED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$", re.DOTALL)
_LIKE_EXCEPTION = re.compile(
    r"(?:Error|Exception|Warning|Exit|Interrupt|Failed|Failure|Timeout|Skipped|Group|Stop\w*)$"
)


def read_raised(
    text: str,
    message: str,
    *,
    nodeid: str = "",
    reason: str = "",
    imports: Collection[str] = (),
) -> Raised:
    """Parse the exception, its message and its frame from a traceback and a message.

    Args:
        text: The traceback, followed by the captured output; may be empty.
        message: The message in one line.
        nodeid: The test's node id; its path shows where the payload's folder is in absolute paths.
        reason: ``crashed`` or ``hung`` if the test ended so.
        imports: Import names of the installed product, such as ``a.b``.
    """
    traceback = _CAPTURED.split(text, maxsplit=1)[0]
    *before, lines = _links([line[:_LINE].rstrip() for line in traceback[-_READ:].split("\n")])
    exception, first, block = _exception_of(lines, message, reason)
    frames = _below_root(list(_frames(lines)), nodeid)
    frame, is_own = _place(frames, imports)
    causes = dict.fromkeys(_exception_of(link, "", "")[0] for link in before)
    causes.pop("", None)
    words = _words(exception, first, block)
    return Raised(exception, words, frame, is_own, tuple(causes)[:_CAUSES])


def _exception_of(lines: Sequence[str], message: str, reason: str) -> tuple[str, str, list[str]]:
    """Return exception class, message and its lines of one exception of a chain."""
    block = _message_lines(lines) or _plain_message_lines(lines, message)
    exception, first = _split(block[0])
    if not exception:
        exception = _raised_at_end(lines) or (reason if reason in CAUSES else "")
    if not exception and first.startswith("assert "):
        exception = "AssertionError"
    return exception, first, block


_CAUSES = 5
"""Maximum number of causes of an exception that are kept."""
CAUSES = frozenset({"crashed", "hung"})
"""Reasons of failures without an exception."""


def _links(lines: list[str]) -> list[list[str]]:
    """Return the lines of each exception of a chain, the one that was raised last at the end."""
    links: list[list[str]] = [[]]
    for line in lines:
        if " exception" in line and _CHAINED.match(line):
            links.append([])
        else:
            links[-1].append(line)
    return [link for link in links if any(line.strip() for line in link)] or [[]]


def _message_lines(lines: Sequence[str]) -> list[str]:
    """Return the last block of lines that begin with ``E``."""
    block: list[str] = []
    inside = False
    for line in lines:
        found = _ERROR_LINE.match(line) if line[:1] == "E" else None
        if found:
            block = [*block, found["message"]] if inside else [found["message"]]
        inside = found is not None or line == "E"
    return block


def _plain_message_lines(lines: Sequence[str], message: str) -> list[str]:
    """Return the message lines of a traceback that has no ``E`` lines.

    They follow a native traceback; without one, they are the first line of `message`.
    """
    last_frame = max((i for i, line in enumerate(lines) if _NATIVE.match(line)), default=-1)
    if last_frame >= 0:
        for index, line in enumerate(lines[last_frame + 1 :], last_frame + 1):
            if line and not line[0].isspace():
                return [each.strip() for each in lines[index : index + _MESSAGE_LINES]]
    return [message.strip().split("\n", 1)[0]]


def _words(exception: str, first: str, block: Sequence[str]) -> str:
    """Return the message in one line: the first line of a failed assertion, or else two lines.

    The second line of other exceptions names the fault.
    """
    if exception in EXPECTATIONS or first.startswith("assert "):
        return first
    more = [line for line in block[1:_MESSAGE_LINES] if line and not line.startswith("+")]
    return " ".join([first, *more])


def _split(message: str) -> tuple[str, str]:
    """Split a line into exception class (may be empty) and message."""
    found = _NAMED.match(message)
    if found is None:
        return "", message
    name = found["name"].rsplit(".", 1)[-1]
    words = found["message"]
    if not _LIKE_EXCEPTION.search(name) and not ("." in found["name"] and words is not None):
        return "", message
    return name, (words or "").strip()


def _raised_at_end(lines: Sequence[str]) -> str:
    """Return the class in the last line of the long form, ``tests/test_a.py:12: ValueError``."""
    for line in reversed(lines):
        found = _LONG_END.match(line) if ":" in line else None
        if found and found["raised"]:
            return found["raised"].rsplit(".", 1)[-1]
    return ""


def _frames(lines: Sequence[str]) -> Iterator[_Frame]:
    """Return every frame of the traceback, outermost first."""
    function, is_lambda = "", False
    for line in lines:
        if ":" not in line and '", line ' not in line and not line.startswith("_ "):
            continue  # most lines are code
        near = _SHORT.match(line) or _NATIVE.match(line)
        if near is not None:
            yield _Frame(near["path"], near["name"])
            continue
        is_lambda = is_lambda or (line[0] == ">" and _LAMBDA.search(line) is not None)
        begun = _LONG_DEF.match(line)
        if begun is not None and not function:
            function = begun["name"]
        ended = _LONG_END.match(line)
        if ended is not None and ended["path"].endswith(".py"):
            yield _Frame(ended["path"], function or (LAMBDA if is_lambda else ""))
        if ended is not None or _ENTRY.match(line):
            function, is_lambda = "", False


_FOREIGN = re.compile(
    r"(?:^|[\\/])(?:site-packages|dist-packages|_pytest|pluggy)[\\/]"
    r"|(?:^|[\\/])lib(?:64)?[\\/]python\d[^\\/]*[\\/]|^<"
)
_TEST = re.compile(r"(?:^|[\\/])(?:test_[^\\/]*|[^\\/]*_test|conftest)\.py$|(?:^|[\\/])tests?[\\/]")


_INSTALLED = re.compile(r".*(?:^|[\\/])(?:site|dist)-packages[\\/]")


def _below_root(frames: Sequence[_Frame], nodeid: str) -> list[_Frame]:
    """Return the frames with paths relative to the payload's folder.

    The folder is known if a frame's path ends with the path of the test.
    """
    path = "/" + nodeid.partition("::")[0]
    found = (frame.path for frame in frames if frame.path.replace("\\", "/").endswith(path))
    root = next((one[: 1 - len(path)] for one in found), "")
    return [_Frame(frame.path.removeprefix(root), frame.function) for frame in frames]


def _place(frames: Sequence[_Frame], imports: Collection[str]) -> tuple[str, bool]:
    """Return the name of the deciding frame, and whether it belongs to the product.

    It is the product's last frame, or else the tests' last frame.
    """
    mine = [frame for frame in frames if _is_mine(frame.path, imports)]
    own = [frame for frame in mine if _is_products(frame.path, imports)]
    if own:
        return _name(own[-1], imports), True
    return (_name(mine[-1], imports), False) if mine else ("", False)


def _is_mine(path: str, imports: Collection[str]) -> bool:
    """Whether the file belongs to the payload or to the product's installed distribution."""
    installed = _below_site(path)
    return _is_below(installed, imports) if installed else not _FOREIGN.search(path)


def _is_products(path: str, imports: Collection[str]) -> bool:
    """Whether a file of the payload or of the product is known to be no test's file."""
    installed = _below_site(path)
    if _TEST.search(installed or path):
        return False
    return bool(installed) or not imports or _is_below(path, imports)


def _is_below(path: str, imports: Collection[str]) -> bool:
    """Whether the path has one of the product's import names as a part."""
    module = "." + path.replace("\\", ".").replace("/", ".")
    return any(f".{name}." in module for name in imports)


def _below_site(path: str) -> str:
    """Return the part of a path below the last ``site-packages``; empty without such a folder."""
    found = _INSTALLED.match(path) if "-packages" in path else None
    return path[found.end() :] if found else ""


def _name(frame: _Frame, imports: Collection[str]) -> str:
    """Return ``package.module.function``; it is the same for source files and installed files."""
    module = ".".join(_module(frame.path, imports))
    return f"{module}.{frame.function}" if frame.function else module


def _module(path: str, imports: Collection[str]) -> list[str]:
    """Return the parts of a module's dotted name; only the last part if the folder is unknown."""
    below = _below_site(path) or path
    parts = below.replace("\\", "/").removesuffix(".py").split("/")
    if parts[-1] in ("__init__", "__main__") and len(parts) > 1:
        parts.pop()
    for one in sorted(imports, key=len, reverse=True):
        names = one.split(".")
        for start in range(len(parts) - len(names) + 1):
            if parts[start : start + len(names)] == names:
                return parts[start:]
    if not parts[0] or ".." in parts or ":" in parts[0]:
        return parts[-1:]
    return parts[1:] if parts[0] in ("src", ".") and len(parts) > 1 else parts


def _rule(kind: FailureClass, *patterns: str) -> tuple[FailureClass, re.Pattern[str]]:
    return kind, re.compile("|".join(patterns), re.IGNORECASE)


_RULES = (
    _rule(
        FailureClass.INFRA,
        r"no space left on device",
        r"read-only file system",
        r"input/output error",
        r"preempt(?:ed|ion)",
        r"spot (?:instance )?interruption",
        r"ssh(?:\b.{0,40})(?:lost|closed|reset|timed out)",
        r"connection (?:reset|refused|aborted|closed|timed out)",
        r"(?:temporary failure in name resolution|name or service not known|could not resolve)",
        r"\b(?:502 bad gateway|503 service unavailable|504 gateway)",
        r"quota exceeded|rate limit exceeded|too many requests",
        r"out of memory: kill|oom.?kill|cannot allocate memory",
        r"hash sum mismatch|could not get lock /var/lib/dpkg",
        r"uncorrectable ecc|gpu has fallen off the bus|\bxid\b.{0,20}\b(?:48|63|64|79|94|95)\b",
    ),
    _rule(
        FailureClass.ENVIRONMENT,
        r"driver (?:version is insufficient|on your system is too old|/library version mismatch)",
        r"no kernel image is available",
        r"no (?:cuda|hip|xpu) (?:gpus|devices?) (?:are|is) available",
        r"not compiled with (?:cuda|rocm|xpu)",
        r"found no nvidia driver",
        r"cannot open shared object file|undefined symbol|glibc(?:xx)?_[\d.]+['`]? not found",
        r"modulenotfounderror|no module named|cannot import name",
        r"pip(?:'s)? (?:dependency resolver|install failed)|no matching distribution found",
        r"(?:nvcc|ninja|gcc|g\+\+|cmake)\b.{0,40}(?:not found|is required|no such file)",
    ),
)


def classify(raised: Raised, reason: str = "") -> FailureClass:
    """Return the probable origin of a failure: that of the first matching rule."""
    message = f"{raised.exception}: {raised.message}"[:_LINE]
    for kind, pattern in _RULES:
        if pattern.search(message):
            return kind
    if raised.is_own or raised.exception in EXPECTATIONS:
        return FailureClass.PRODUCT
    if reason == "collection" or (raised.frame and raised.exception):
        return FailureClass.TEST
    return FailureClass.UNKNOWN
