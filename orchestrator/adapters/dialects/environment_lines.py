"""Facts about the machine and its software, from lines that print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

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
_WANTED = re.compile(
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


def tells(small: str) -> bool:
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
        if not (facts or machine or device) or _WANTED.search(line):
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
