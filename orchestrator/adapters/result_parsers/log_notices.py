"""What any line of a log may say beside results: version stamps, fallbacks, the machine.

A fallback that happens while something is used marks the job as degraded. A part that is found
missing when it is imported is only remarked: whatever needs it says so when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from orchestrator.domain.parsed_results import (
    ParsedEnvironment,
    ParsedFallback,
    ParsedProblem,
    ParsedVersion,
    Said,
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
    """Whether a line, in small letters, can hold a fact: every reader needs one of the words."""
    return any(word in small for word in _WORDS) or _OS.match(small) is not None


class EnvironmentLines:
    """Collects what the lines of one artifact say; the device grows as more is said of it."""

    def __init__(self) -> None:
        """Know nothing."""
        self._known: Facts = {}
        self._device: Facts = {}

    def see(self, line: str) -> Mapping[str, object]:
        """What is new in the line, in the words of `ParsedEnvironment`; empty where nothing is."""
        facts: Facts = {}
        for read in _READERS:
            facts.update(read(line))
        machine: Facts = {**_kernel(line), **_os(line)}
        device = _device(line)
        if not (facts or machine or device) or _WANTED_FACTS.search(line):
            return {}
        if self._has_grown(device):
            machine["devices"] = [dict(self._device)]
        if machine:
            facts["machine"] = machine
        return self._news(facts)

    def _has_grown(self, said: Facts) -> bool:
        """Add what is said of the device; a second device of another name is not ours to mix."""
        if said.get("name", self._device.get("name")) != self._device.get("name", said.get("name")):
            return False
        grown = {**said, **self._device}
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
        is_stamped, is_telling = " v" in line, is_notable(small)
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
