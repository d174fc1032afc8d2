"""The matrix: platforms x environments x jobs with limits, and its expansion to cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Literal

from orchestrator.domain.accelerators import ANY_GPU, INSTANCE_DEVICES, UNSEEN_DEVICES
from orchestrator.domain.document_problems import SUCH_AS
from orchestrator.domain.field_limits import STRICT
from orchestrator.domain.gate.verdict import LATER
from orchestrator.domain.manifest import CAPABILITY, Job, Manifest
from orchestrator.domain.units import plural

ANY = "any"
"""In a policy: accepts any hardware, even if the platform's id implies other hardware."""
_JOBS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedHardware:
    """Requirements for the machines of a platform; empty fields are not checked."""

    __pydantic_config__ = STRICT

    provider: str = ""
    """The provider, such as ``aws``, ``gcp``, ``tpu``, ``static`` or ``local``."""
    instance: str = ""
    """The instance type that the provider reports."""
    accelerator: str = ""
    """Words of the accelerator's name, as its vendor's tool reports it: ``NVIDIA L4``.

    ``GPU`` matches every accelerator except for TPU chips.
    """
    system: str = field(default="", metadata=LATER)
    """Words of the operating system and of the CPU's architecture, such as ``Linux aarch64``."""


@dataclass(frozen=True, slots=True)
class HardwareDifference:
    """A difference between a machine and the requirements for it."""

    sentence: str
    is_known: bool = True
    """Whether the machine's value is known; if not, the requirement may be met."""


def differences(
    wanted: ExpectedHardware,
    *,
    provider: str,
    instance: str,
    devices: Sequence[str] | None,
    system: str,
) -> Iterator[HardwareDifference]:
    """Yield the differences between a machine and its requirements.

    Args:
        wanted: The requirements.
        provider: Name of the machine's provider.
        instance: Instance type of the machine; empty if unknown.
        devices: Vendor and name of each accelerator; None if they were not looked for.
        system: Operating system and CPU of the machine (`system_of`); empty if unknown.
    """
    if wanted.provider:
        yield from _compared("its provider", provider, wanted.provider)
    if wanted.instance:
        yield from _compared("its instance type", instance, wanted.instance)
    if wanted.accelerator and devices is None:
        yield HardwareDifference("nobody looked at its accelerators", is_known=False)
    elif wanted.accelerator and not any(is_named(one, wanted.accelerator) for one in devices or ()):
        unseen = UNSEEN_DEVICES.intersection(_words(wanted.accelerator))
        said = f"it has {', '.join(devices or ()) or 'no accelerator'}"
        more = f" that is seen, and {wanted.accelerator} is none that can be" if unseen else ""
        yield HardwareDifference(f"{said}{more}", is_known=not unseen)
    if wanted.system and not system:
        yield HardwareDifference("its operating system is not known", is_known=False)
    elif wanted.system and not is_named(system, wanted.system):
        yield HardwareDifference(f"its system is {system}")


def system_of(probed: Mapping[str, object]) -> str:
    """Return the operating system and CPU of a probe: ``Linux Ubuntu 24.04 LTS x86_64``.

    Empty if the probe has no operating system.
    """
    os, cpu = (str(probed.get(key) or "") for key in ("os", "machine"))
    if not os:
        return ""
    family = "macOS" if os.startswith("Darwin") else "" if "BSD" in os else "Linux"
    return " ".join(word for word in (family, os, cpu.replace("arm64", "aarch64")) if word)


def hardware_sentence(wanted: ExpectedHardware) -> str:
    """Return requirements in words: ``of gcp g2-standard-4 with NVIDIA L4``; empty without any."""
    place = " ".join(word for word in (wanted.provider, wanted.instance) if word)
    device = f"with {wanted.accelerator}" if wanted.accelerator else ""
    system = f"under {wanted.system}" if wanted.system else ""
    return " ".join(part for part in (place and f"of {place}", device, system) if part)


def is_named(text: str, requested: str) -> bool:
    """Whether the words of `requested` occur in `text` in their order.

    Whole words are compared: an L40S is no L4. ``GPU`` is in every text that is not of Google.
    """
    if requested == ANY_GPU:
        return _words(text)[:1] != ["google"]
    words = iter(_words(text))
    return all(word in words for word in _words(requested))


def _words(name: str) -> list[str]:
    return name.lower().replace("-", " ").replace("_", " ").split()


def _compared(what: str, text: str, wanted: str) -> Iterator[HardwareDifference]:
    if not text:
        yield HardwareDifference(f"{what} is not known", is_known=False)
    elif text != wanted:
        yield HardwareDifference(f"{what} is {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Name of a matrix."""

    __pydantic_config__ = STRICT

    name: str
    """Name of the matrix in pages, commands and reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A subject built from a git revision."""

    __pydantic_config__ = STRICT

    url: str
    """URL that git can clone."""
    rev: str
    """Commit, tag or branch; resolved to a commit at launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The validated subject; without a source, the payload itself."""

    __pydantic_config__ = STRICT

    name: str
    """The distribution's name."""
    version: str
    """The version; quoted, because an unquoted 1.10 is the number 1.1."""
    wheel: str | None = None
    """Path of a wheel file, relative to the matrix; or a pattern that matches one file."""
    package: str | None = None
    """A pinned requirement, such as ``name==1.2``."""
    git: GitSource | None = None
    """A git revision that is built."""

    @property
    def source(self) -> str:
        """The kind of source: wheel, package, git or payload."""
        return next((k for k in ("wheel", "package", "git") if getattr(self, k)), "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSource:
    """Location of the payload."""

    __pydantic_config__ = STRICT

    path: str
    """Path of a folder or a .tar.gz file, absolute or relative to the matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The baseline of paired benchmarks: one source, and when pairing ends."""

    __pydantic_config__ = STRICT

    package: str | None = None
    """A pinned requirement of the subject's distribution, such as ``name==1.2``."""
    wheel: str | None = None
    """Path of a wheel file, relative to the matrix; or a pattern that matches one file."""
    git: GitSource | None = None
    """A git revision that is built."""
    payload: PayloadSource | None = None
    """An earlier payload, if the subject is the payload itself."""
    min_pairs: int = 10
    """Minimum number of pairs of each benchmark."""
    max_pairs: int = 160
    """Maximum number of pairs of each benchmark."""
    precision: str = field(default="0.6%", metadata={SUCH_AS: "0.6%"})
    """Pairing ends when the confidence interval of every ratio is this narrow."""

    @property
    def source(self) -> str:
        """The kind of source: package, wheel, git or payload."""
        return next((k for k in BASELINE_SOURCES if getattr(self, k)), "payload")

    @property
    def half_width(self) -> float | None:
        """The precision as a number, 0.015 for ``1.5%``; None if it is no percentage."""
        found = _PERCENT.fullmatch(self.precision.strip())
        return float(found[1]) / 100 if found else None

    def as_subject(self, name: str) -> Subject:
        """Return the baseline as a subject without a version."""
        sources = {"package": self.package, "wheel": self.wheel}
        return Subject(name=name, version="", git=self.git, **sources)


BASELINE_SOURCES = ("package", "wheel", "git", "payload")
_PERCENT = re.compile(r"(\d{1,2}(?:\.\d{1,4})?) ?%")


GIGABYTE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run: money, time and machines."""

    __pydantic_config__ = STRICT

    max_usd: Decimal | None = None
    """US dollars for the whole run; required if any machine is rented."""
    max_minutes: float = 60.0
    """Time limit of an attempt in minutes."""
    max_parallel: int = 8
    """Maximum number of cells that hold a machine at the same time."""
    infra_retries: int = 2
    """Number of further attempts after an infrastructure fault."""
    allow_unknown_price: bool = False
    """Whether machines may be rented whose price is unknown or older than 90 days."""
    max_shipped_gb: float = 3.0
    """Maximum size of the packages that are sent to a machine, in GB (10^9 bytes)."""

    @property
    def max_shipped_bytes(self) -> int:
        """`max_shipped_gb` in bytes."""
        return int(self.max_shipped_gb * GIGABYTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The accelerator that a machine must have."""

    __pydantic_config__ = STRICT

    vendor: Literal["nvidia", "amd", "intel", "google"]
    """Its vendor."""
    name: str
    """Its name as the vendor's tool reports it, or a part of the name."""
    count: int = 1
    """Number of accelerators."""
    compute_capability: str | None = None
    """Its compute capability, quoted: ``"8.6"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of the user's own."""

    __pydantic_config__ = STRICT

    address: str
    """Host name or IP address."""
    user: str
    """Login name."""
    key_file: str
    """File name of the private key in ``HOME/keys``."""
    host_key: str
    """The host's public key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    port: int = 22
    """SSH port."""

    @property
    def place(self) -> str:
        """``address:port``, which is unique within a pool."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform: a row of the matrix."""

    __pydantic_config__ = STRICT

    id: str
    """Id of the platform, unique in the matrix."""
    provider: str
    """The provider of its machines."""
    instance_type: str | tuple[str, ...] | None = None
    """One instance type, or several in order of preference."""
    accelerator: Accelerator | None = None
    """The accelerator that the machine must have."""
    expect: ExpectedHardware | None = None
    """Requirements for its machines beyond those of its id; checked before the first job."""
    accelerator_type: str | None = None
    """Type of the TPU, such as ``v5litepod-1``."""
    runtime_version: str | None = None
    """Software version of the TPU."""
    locations: tuple[str, ...] | Literal["cheapest"] | None = None
    """Regions or zones in order of preference."""
    market: tuple[Literal["spot", "on-demand"], ...] | None = None
    """Markets in order of preference; spot machines are cheaper and may be taken away."""
    image: dict[str, str | tuple[str, ...]] | None = None
    """How the image is selected."""
    connect: Literal["public", "private", "iap", "ssm"] | None = None
    """How the machine is reached: its public or private address, or a tunnel of Google's
    Identity-Aware Proxy (``iap``) or of AWS Systems Manager (``ssm``)."""
    bastion: Host | None = None
    """An own host that SSH connections to the machine go through."""
    disk_gb: int | None = None
    """Size of the disk in GB (10^9 bytes)."""
    hosts: tuple[Host, ...] | None = None
    """A pool of hosts; each cell uses one of them alone."""
    environments: tuple[str, ...] | None = None
    """Environments that replace those of the matrix."""
    optional: bool = False
    """Whether the platform does not count if it is not available; if none is, all count."""
    options: dict[str, str] | None = None
    """Options that only the provider knows."""


def has_public_address(platform: Platform) -> bool:
    """Whether the platform's machines have a public address that the controller connects to."""
    return platform.connect in (None, "public")


COMMON_KEYS = frozenset(
    {"id", "provider", "accelerator", "expect", "environments", "optional", "options"}
)
"""Keys that the platforms of every provider may have."""


_DEVICE_KINDS = {"nvidia": "cuda", "amd": "cuda", "intel": "xpu", "google": "xla"}


def device_kind(platform: Platform) -> str | None:
    """Return torch's name of the accelerator's kind, such as ``cuda``; None without one."""
    if platform.accelerator is not None:
        return _DEVICE_KINDS[platform.accelerator.vendor]
    return "xla" if platform.accelerator_type else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """A selection of jobs and their platforms."""

    __pydantic_config__ = STRICT

    id: str | None = None
    """Id of one job of the payload."""
    select: str | None = None
    """Pattern of job ids; replaces `id`."""
    on: tuple[str, ...] | Literal["all"] = "all"
    """Ids of the platforms that run the jobs, or ``all``."""
    idle_timeout_minutes: float | None = None
    """Minutes without output and events after which a job hangs; replaces that of payload.toml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The content of a matrix file."""

    __pydantic_config__ = STRICT

    metadata: Metadata
    """The name of the matrix."""
    subject: Subject
    """The validated subject."""
    platforms: tuple[Platform, ...]
    """The platforms."""
    jobs: tuple[JobSelection, ...]
    """The selected jobs and their platforms."""
    payload: PayloadSource | Literal["builtin"] = "builtin"
    """The payload with tests, demos, benchmarks and use cases."""
    baseline: Baseline | None = None
    """The baseline of paired benchmarks."""
    environments: tuple[str, ...] = ("image",)
    """Names of environments in payload.toml."""
    limits: Limits = field(default_factory=Limits)
    """Limits of money, time and machines."""
    secrets: dict[str, dict[Literal["from"], Literal["env"]]] = field(default_factory=dict)
    """Environment variables of the controller that jobs may receive, by name."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A planned cell of the matrix."""

    id: str
    """The platform's id, or ``platform.environment`` if the platform has several environments."""
    platform: Platform
    environment: str
    jobs: tuple[str, ...]
    """Ids of its jobs in the order of the manifest."""


def expand(matrix: Matrix, manifest: Manifest) -> tuple[CellPlan, ...]:
    """Return the cells of a valid matrix, in the order of the matrix."""
    cells = []
    for platform in matrix.platforms:
        names = platform.environments or matrix.environments
        jobs = jobs_on(platform.id, matrix, manifest)
        for name in names:
            cell_id = platform.id if len(names) == 1 else f"{platform.id}.{name}"
            cells.append(CellPlan(cell_id, platform, name, jobs))
    return tuple(cells)


def jobs_on(platform_id: str, matrix: Matrix, manifest: Manifest) -> tuple[str, ...]:
    """Return the ids of the jobs that run on a platform, in the order of the manifest."""
    return tuple(job.id for job, unfit in _selected_on(platform_id, matrix, manifest) if not unfit)


def jobs_left_out(matrix: Matrix, manifest: Manifest) -> Iterator[str]:
    """Yield sentences about jobs of the payload that do not run.

    There is one for each selected job that cannot run on a platform, and one for all unselected
    jobs. A job that is selected by its id and cannot run is an error of `check_matrix`.
    """
    selected = set()
    for platform in matrix.platforms:
        for job, unfit in _selected_on(platform.id, matrix, manifest):
            selected.add(job.id)
            if unfit:
                yield f"job {job.id} is not sent to {platform.id}: {unfit}"
    unselected = [job.id for job in manifest.job if job.id not in selected]
    if unselected:
        verb = "is" if len(unselected) == 1 else "are"
        named = ", ".join(unselected[:_JOBS_NAMED])
        more = f" and {len(unselected) - _JOBS_NAMED} more" if unselected[_JOBS_NAMED:] else ""
        jobs = plural(len(unselected), "job")
        yield f"{jobs} of the payload {verb} selected on no platform: {named}{more}"


def why_unfit(job: Job, platform: Platform) -> str:
    """Return why a job cannot run on any machine of the platform; empty if it may run."""
    told = compute_capability(platform)
    if job.compute_capability and device_kind(platform) is not None and not _is_nvidia(platform):
        return f"it needs an NVIDIA GPU of compute capability {job.compute_capability}"
    if not job.compute_capability or not told:
        return ""
    if _version(told) >= _version(job.compute_capability):
        return ""
    return f"it needs compute capability {job.compute_capability}, and the platform has {told}"


def _is_nvidia(platform: Platform) -> bool:
    return platform.accelerator is not None and platform.accelerator.vendor == "nvidia"


def compute_capability(platform: Platform) -> str:
    """Return the highest known compute capability of the platform's GPU; empty if unknown."""
    promised = platform.accelerator.compute_capability if platform.accelerator else None
    if promised:
        return promised
    types = platform.instance_type or ()
    known = [
        INSTANCE_DEVICES[name].compute_capability if name in INSTANCE_DEVICES else ""
        for name in ((types,) if isinstance(types, str) else types)
    ]
    return max(known, key=_version) if known and all(known) else ""


def _version(capability: str) -> tuple[int, ...]:
    found = CAPABILITY.fullmatch(capability)
    return tuple(map(int, found.groups())) if found else ()


def _selected_on(platform_id: str, matrix: Matrix, manifest: Manifest) -> Iterator[tuple[Job, str]]:
    """Yield each job that is selected on the platform, with why it cannot run there (or empty)."""
    platform = next((one for one in matrix.platforms if one.id == platform_id), None)
    chosen = [s for s in matrix.jobs if s.on == "all" or platform_id in s.on]
    for job in manifest.job:
        if any(selects(s, job.id) for s in chosen):
            yield job, why_unfit(job, platform) if platform else ""


def idle_timeouts_of(job_id: str, platform_id: str, matrix: Matrix) -> frozenset[float]:
    """Return the idle timeouts of a job on a platform, in minutes; at most one if valid."""
    return frozenset(
        one.idle_timeout_minutes
        for one in matrix.jobs
        if one.idle_timeout_minutes is not None
        and (one.on == "all" or platform_id in one.on)
        and selects(one, job_id)
    )


def selects(selection: JobSelection, job_id: str) -> bool:
    """Whether the selection includes the job."""
    if selection.id is not None:
        return selection.id == job_id
    return selection.select is not None and fnmatchcase(job_id, selection.select)
