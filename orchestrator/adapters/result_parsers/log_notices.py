"""Finds version stamps, fallbacks and machine facts in log lines.

A fallback while a part is used marks the job as degraded. A part that is missing on import is only
a remark: the code that needs it reports a fallback when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from orchestrator.domain.parsed_results import (
    ParsedEnvironment,
    ParsedFallback,
    ParsedItem,
    ParsedProblem,
    ParsedVersion,
)

Facts = dict[str, object]

_VALUE = r"\s{0,8}[:=]{1,2}\s{0,8}"
_VERSION = r"\d{1,4}(?:\.\d{1,6}){1,3}(?:(?:a|b|rc|\.dev)\d{1,9})?(?:\+[A-Za-z0-9.]{1,40})?"
_END = r"(?![\w.+-]*\w)"
_TORCH = re.compile(
    rf"(?i)(?<![\w-])(?:py)?torch(?: version)?{_VALUE}v?({_VERSION}){_END}"
    r"|^\W{0,8}(?:py)?torch(?: version)? v?(\d{1,3}(?:\.\d{1,4}){2}\+[a-z0-9.]{1,40})" + _END
)
_CUDA = re.compile(
    rf"(?i)^\W{{0,8}}cuda(?: version)?{_VALUE}v?(\d{{1,2}}\.\d{{1,2}}(?:\.\d{{1,4}})?){_END}"
)
_PYTHON = re.compile(
    rf"(?i)^\W{{0,8}}(?:platform \w{{1,20}} -- )?python(?: version)?"
    rf"(?:{_VALUE}| )v?(\d\.\d{{1,2}}\.\d{{1,3}}(?:(?:a|b|rc)\d{{1,2}})?\+?){_END}"
)
_PYTEST = re.compile(
    r"\b(pytest|pluggy)-(\d{1,4}(?:\.\d{1,6}){1,3}(?:(?:a|b|rc|\.dev)\d{1,9})?)(?=[, ]|$)"
)
_PLATFORM = re.compile(
    r"'Platform': 'Linux-(\d[^-']{0,40}(?:-[^-']{1,40}){0,4}?)"
    r"-(x86_64|aarch64|arm64|ppc64le|s390x|i686)(?:-with-(glibc|musl)(\d[\d.]{0,10}))?'"
)
_DEVICE = re.compile(
    r"(?i)^\W{0,8}(?:gpu|device|accelerator)(?: \d{1,2})?(?: name)?"
    + _VALUE
    + r"((?:nvidia|tesla|geforce|quadro|amd|radeon|instinct|intel|google|tpu)\b[^\n:|;,]{0,80})"
)
_CAPABILITY = re.compile(
    r"(?i)(?:\bcompute capability" + _VALUE + r"(?:sm_?)?\(?|\(compute (?:capability )?)"
    r"(\d{1,2})[.,] ?(\d)\)?" + _END
)
_DRIVER = re.compile(rf"(?i)\bdriver(?: version)?{_VALUE}(\d{{3,4}}(?:\.\d{{1,4}}){{1,3}}){_END}")
_OS = re.compile(r"(?i)^\W{0,8}os" + _VALUE + r"([A-Z][A-Za-z]{1,30}[ \w.()-]{0,60})$")
_WANTED_FACTS = re.compile(
    r"(?i)requir|need|minimum|at least|or (?:higher|newer|later|above)|>=|≥|support"
)
_BUILT_FOR = re.compile(r"\+cu(\d{2})(\d{1,2})$|\+rocm(\d{1,2}(?:\.\d{1,2}){1,2})$")
_VENDORS = {
    "nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "quadro": "nvidia",
    "amd": "amd", "radeon": "amd", "instinct": "amd", "intel": "intel",
    "google": "google", "tpu": "google",
}  # fmt: skip


_WORDS = (
    "torch", "cuda", "python", "platform", "gpu", "device", "accelerator", "compute", "driver",
)  # fmt: skip


def is_notable(small: str) -> bool:
    """Return whether a lower-case line has a word that a reader requires."""
    return any(word in small for word in _WORDS) or _OS.match(small) is not None


class EnvironmentLines:
    """Collects environment facts from the lines of one artifact; device facts are merged."""

    def __init__(self) -> None:
        """Start without facts."""
        self._known: Facts = {}
        self._device: Facts = {}

    def see(self, line: str) -> Mapping[str, object]:
        """Return the line's new facts, with the keys of `ParsedEnvironment`; empty without any."""
        facts: Facts = {}
        for read in _READERS:
            facts.update(read(line))
        machine: Facts = {**_kernel(line), **_os(line)}
        device = _device(line)
        if not (facts or machine or device) or _WANTED_FACTS.search(line):
            return {}
        if self._merge_device(device):
            machine["devices"] = [dict(self._device)]
        if machine:
            facts["machine"] = machine
        return self._news(facts)

    def _merge_device(self, facts: Facts) -> bool:
        """Merge facts into the device; return False for a device of another name."""
        if facts.get("name", self._device.get("name")) != self._device.get(
            "name", facts.get("name")
        ):
            return False
        grown = {**facts, **self._device}
        is_new = grown != self._device
        self._device = grown
        return is_new

    def _news(self, facts: Facts) -> Facts:
        new = {key: value for key, value in facts.items() if self._known.get(key) != value}
        if set(new) == {"derived"}:
            return {}
        self._known.update(new)
        return new


def _torch(line: str) -> Facts:
    found = _TORCH.search(line)
    if not found:
        return {}
    version = found.group(1) or found.group(2)
    built = _BUILT_FOR.search(version)
    if not built:
        return {"torch": version}
    major, minor, rocm = built.groups()
    name, value = ("hip", rocm) if rocm else ("cuda", f"{major}.{minor}")
    return {"torch": version, name: value, "derived": {name: f"the build of torch {version}"}}


def _cuda(line: str) -> Facts:
    found = _CUDA.match(line)
    return {"cuda": found.group(1)} if found else {}


def _python(line: str) -> Facts:
    found = _PYTHON.match(line)
    return {"python": found.group(1)} if found else {}


def _packages(line: str) -> Facts:
    if not line.startswith("platform "):
        return {}
    found = dict(_PYTEST.findall(line))
    return {"packages": found} if found else {}


def _kernel(line: str) -> Facts:
    found = _PLATFORM.search(line)
    if not found:
        return {}
    kernel, machine, libc, version = found.groups()
    facts: Facts = {"kernel": kernel, "machine": machine}
    return {**facts, "libc": [libc, version]} if libc else facts


def _os(line: str) -> Facts:
    found = _OS.match(line)
    return {"os": found.group(1).strip()} if found else {}


def _device(line: str) -> Facts:
    facts: Facts = {}
    if found := _DEVICE.match(line):
        name = found.group(1).split("(")[0].strip()
        facts = {"vendor": _VENDORS[name.split()[0].split("-")[0].lower()], "name": name}
    if found := _CAPABILITY.search(line):
        facts["compute_capability"] = f"{found.group(1)}.{found.group(2)}"
    if found := _DRIVER.search(line):
        facts["driver"] = found.group(1)
    return facts


_READERS: tuple[Callable[[str], Facts], ...] = (_cuda, _torch, _python, _packages)


LOOKED_AT = 2_000
"""Maximum characters of a line that are searched: notices are near its beginning."""
SENTENCE_LIMIT = 500
KEPT = 200
"""Maximum number of different remarks of one kind for one artifact."""

FALLBACKS: tuple[str, ...] = (
    r"\b(?:falling|fell|falls)[ -]back\b",
    (
        r"\b(?:cuda|gpu|mps|xla|tpu|rocm|hip|xpu) (?:is )?(?:not available|unavailable)\b"
        r"[^\n]{0,80}\b(?:using|on|to) (?:the )?cpu\b"
    ),
    r"\b(?:using|running on) (?:the )?cpu instead\b",
)
"""Messages of a fallback while a part is used."""
ABSENCES: tuple[str, ...] = (
    r"\bnot (?:available|installed|found)\b[^\n]{0,80}\b(?:using|will use|fallback)\b",
    r"\bimport failed\b",
    r"\bcould not be imported\b",
)
"""Messages of a missing part on import: a remark, since no code has used it yet."""

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
SPEAKING = ("back", "instead", "available", "installed", "found", "import")
"""Lines without any of these words, in lower case, are not searched for fallbacks and absences."""
_DIGITS = re.compile(r"\d+")


class LogNotices:
    """Reads the lines of one artifact in order; reports each notice once."""

    def __init__(
        self,
        *,
        suite: bool = False,
        fallbacks: tuple[str, ...] = FALLBACKS,
        absences: tuple[str, ...] = ABSENCES,
    ) -> None:
        """Set the patterns of fallbacks and missing parts.

        Args:
            suite: whether the lines are of a suite, where a fallback concerns one test and is a
                remark instead of a mark on the job.
            fallbacks: patterns of messages about a fallback in use.
            absences: patterns of messages about a missing part.
        """
        self._suite = suite
        self._fallback = re.compile("|".join(fallbacks), re.IGNORECASE)
        self._absence = re.compile("|".join(absences), re.IGNORECASE)
        self._surroundings = EnvironmentLines()
        self._sentences: dict[str, set[str]] = {}

    def see(self, line: str) -> tuple[ParsedItem, ...]:
        """Return the notices of the line that no earlier line had."""
        line = line[:LOOKED_AT]
        small = line.lower()
        speaks = any(word in small for word in SPEAKING)
        is_stamped, is_telling = " v" in line, is_notable(small)
        if not (speaks or is_stamped or is_telling) or _SOURCE.match(line):
            return ()
        said: list[ParsedItem] = [*self._spoken(line)] if speaks else []
        said += self._stamps(line) if is_stamped else ()
        facts = self._surroundings.see(line) if is_telling else {}
        if facts:
            said.append(ParsedEnvironment(facts))
        return tuple(said)

    def _spoken(self, line: str) -> Iterator[ParsedItem]:
        sentence = _sentence(line)
        if self._fallback.search(sentence) and not _NEGATED.search(sentence):
            if self._remember("fallback", _DIGITS.sub("0", sentence)):
                yield self._fell_back(sentence)
        elif self._absence.search(sentence) and self._remember("absence", sentence):
            yield ParsedProblem("warning", f"it says: {sentence}")
        unused = _unused(line)
        if unused and self._remember("unused", unused):
            yield ParsedProblem("warning", unused)

    def _fell_back(self, sentence: str) -> ParsedItem:
        if self._suite:
            return ParsedProblem("warning", f"a fallback: {sentence}")
        return ParsedFallback(sentence)

    def _stamps(self, line: str) -> Iterator[ParsedItem]:
        found = _STAMP.findall(line)
        if not found or _WANTED.search(line.lower()):
            return
        for name, version in found:
            if name.lower() in _NOT_SUBJECTS:
                continue
            if self._remember("stamp", f"{name} {version}"):
                yield ParsedVersion(name, version)

    def _remember(self, what: str, text: str) -> bool:
        known = self._sentences.setdefault(what, set())
        if text in known or len(known) >= KEPT:
            return False
        known.add(text)
        return True


def _sentence(line: str) -> str:
    """Return the message without its source location and its level."""
    said = _LEVEL.sub("", _WARNING.sub("", line.strip(), count=1), count=1)
    return said.strip()[:SENTENCE_LIMIT]


_AVAILABLE = re.compile(r"'(\w{1,60})_available': True")


def _unused(line: str) -> str:
    """Return a remark for a printed dictionary with an available and unused feature."""
    for match in _AVAILABLE.finditer(line):
        name = match.group(1)
        if f"'using_{name}': False" in line:
            return f"it says that {name} is available, and that it is not used"
    return ""
