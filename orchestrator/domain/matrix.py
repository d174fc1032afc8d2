"""The matrix: platforms x environments x jobs, hardware and limits; its expansion to cells."""

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
"""In a policy: accepts any hardware, also another than the platform's id implies."""
_JOBS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedHardware:
    """Requirements for a platform's machines; absent ones are not checked."""

    __pydantic_config__ = STRICT

    provider: str = ""
    """The provider: ``aws``, ``gcp``, ``tpu``, ``static``, ``local``."""
    instance: str = ""
    """The instance type that the provider must report."""
    accelerator: str = ""
    """Words of the accelerator's name, as its tools report it: ``NVIDIA L4``; ``GPU`` is any but a
    TPU chip."""
    system: str = field(default="", metadata=LATER)
    """Words of the operating system and of the CPU's architecture: ``Linux aarch64``."""


@dataclass(frozen=True, slots=True)
class HardwareDifference:
    """A difference between a machine and its requirements."""

    sentence: str
    is_known: bool = True
    """Whether the value was read; otherwise it is unknown."""


def differences(
    wanted: ExpectedHardware,
    *,
    provider: str,
    instance: str,
    devices: Sequence[str] | None,
    system: str,
) -> Iterator[HardwareDifference]:
    """Return how a machine differs from its requirements; empty if the machine meets them.

    Args:
        wanted: The requirements.
        provider: Name of the provider.
        instance: The provider's name of its type; empty if unknown.
        devices: Its accelerators by vendor and name; None if nobody looked.
        system: Its operating system and CPU (`system_of`); empty if unknown.
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
    """Return operating system and architecture of a probe: ``Linux Ubuntu 24.04 LTS x86_64``."""
    os, cpu = (str(probed.get(key) or "") for key in ("os", "machine"))
    if not os:
        return ""
    family = "macOS" if os.startswith("Darwin") else "" if "BSD" in os else "Linux"
    return " ".join(word for word in (family, os, cpu.replace("arm64", "aarch64")) if word)


def hardware_sentence(wanted: ExpectedHardware) -> str:
    """Describe requirements: ``of gcp g2-standard-4 with NVIDIA L4``; empty without any."""
    place = " ".join(word for word in (wanted.provider, wanted.instance) if word)
    device = f"with {wanted.accelerator}" if wanted.accelerator else ""
    system = f"under {wanted.system}" if wanted.system else ""
    return " ".join(part for part in (place and f"of {place}", device, system) if part)


def is_named(text: str, requested: str) -> bool:
    """Whether the requested words occur in the found name in order: L4 is not an L40S."""
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
    """Shown wherever the matrix is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """A subject built from a git revision."""

    __pydantic_config__ = STRICT

    url: str
    """Any URL that git can clone."""
    rev: str
    """Commit, tag or branch; resolved to a commit at launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The validated subject. Without a source, it is the payload itself."""

    __pydantic_config__ = STRICT

    name: str
    """The distribution's name."""
    version: str
    """Quoted, since an unquoted 1.10 is the number 1.1."""
    wheel: str | None = None
    """A wheel file, relative to the matrix; a pattern that matches exactly one."""
    package: str | None = None
    """A pinned requirement, ``name==1.2``."""
    git: GitSource | None = None
    """A revision to build."""

    @property
    def source(self) -> str:
        """Return the source of the subject: wheel, package, git or payload."""
        return next((k for k in ("wheel", "package", "git") if getattr(self, k)), "payload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSource:
    """Location of the payload."""

    __pydantic_config__ = STRICT

    path: str
    """A folder or .tar.gz, relative to the matrix, or absolute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The baseline of paired benchmarks: exactly one source, and when pairing ends."""

    __pydantic_config__ = STRICT

    package: str | None = None
    """A pinned requirement, ``name==1.2``, of the subject's distribution."""
    wheel: str | None = None
    """A wheel file, relative to the matrix; a pattern that matches exactly one."""
    git: GitSource | None = None
    """A revision to build."""
    payload: PayloadSource | None = None
    """An earlier payload, where the subject is the payload itself."""
    min_pairs: int = 10
    """Minimum pairs of every benchmark."""
    max_pairs: int = 160
    """Maximum pairs of every benchmark."""
    precision: str = field(default="0.6%", metadata={SUCH_AS: "0.6%"})
    """Pairing ends once the confidence interval of every ratio is this narrow."""

    @property
    def source(self) -> str:
        """Return the source of the baseline: package, wheel, git or payload."""
        return next((k for k in BASELINE_SOURCES if getattr(self, k)), "payload")

    @property
    def half_width(self) -> float | None:
        """Return the precision as a number, 0.015 for ``1.5%``; None if it is no percentage."""
        found = _PERCENT.fullmatch(self.precision.strip())
        return float(found[1]) / 100 if found else None

    def as_subject(self, name: str) -> Subject:
        """Return the baseline as a subject; its version is that of its wheel."""
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
    """For the whole run; required once anything is rented."""
    max_minutes: float = 60.0
    """Time limit of an attempt."""
    max_parallel: int = 8
    """Maximum cells that hold a machine at the same time."""
    infra_retries: int = 2
    """Further attempts after an infrastructure fault."""
    allow_unknown_price: bool = False
    """Whether machines without a known price, or with one older than 90 days, may be rented."""
    max_shipped_gb: float = 3.0
    """Maximum size of the packages that a machine is sent, in GB (10^9 bytes)."""

    @property
    def max_shipped_bytes(self) -> int:
        """The same in bytes."""
        return int(self.max_shipped_gb * GIGABYTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The required accelerator."""

    __pydantic_config__ = STRICT

    vendor: Literal["nvidia", "amd", "intel", "google"]
    """The vendor."""
    name: str
    """Name as the vendor's tool prints it, or a part of it."""
    count: int = 1
    """Number of accelerators."""
    compute_capability: str | None = None
    """Quoted, ``"8.6"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of your own."""

    __pydantic_config__ = STRICT

    address: str
    """Host name or IP address."""
    user: str
    """Login name."""
    key_file: str
    """File name of the private key below ``HOME/keys``."""
    host_key: str
    """The host's public key, as in known_hosts: ``ssh-ed25519 AAAA...``."""
    port: int = 22
    """SSH port."""

    @property
    def place(self) -> str:
        """``address:port``, unique within a pool."""
        shown = f"[{self.address}]" if ":" in self.address else self.address
        return f"{shown}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform: a row of the matrix."""

    __pydantic_config__ = STRICT

    id: str
    """Unique in the matrix."""
    provider: str
    """The provider that rents the machine."""
    instance_type: str | tuple[str, ...] | None = None
    """One instance type, or several in order of preference."""
    accelerator: Accelerator | None = None
    """The accelerator that the machine must have."""
    expect: ExpectedHardware | None = None
    """Requirements for its machine beyond what its id implies; checked before the first job."""
    accelerator_type: str | None = None
    """TPU type: ``v5litepod-1``."""
    runtime_version: str | None = None
    """TPU software version."""
    locations: tuple[str, ...] | Literal["cheapest"] | None = None
    """Regions or zones in order of preference."""
    market: tuple[Literal["spot", "on-demand"], ...] | None = None
    """Markets in order of preference: spot machines are cheaper and may be taken away."""
    image: dict[str, str | tuple[str, ...]] | None = None
    """Selection of the image."""
    connect: Literal["public", "private", "iap", "ssm"] | None = None
    """Which of the machine's addresses is used: the public or the private one, or neither: the
    tunnel of Google's Identity-Aware Proxy, or of AWS Systems Manager."""
    bastion: Host | None = None
    """A host of your own that SSH connections to the machine go through."""
    disk_gb: int | None = None
    """Disk size in GB (10^9 bytes)."""
    hosts: tuple[Host, ...] | None = None
    """A pool of hosts; a cell takes one exclusively."""
    environments: tuple[str, ...] | None = None
    """Environments in place of the matrix's."""
    optional: bool = False
    """Whether being unavailable is ignored, unless every platform is."""
    options: dict[str, str] | None = None
    """Provider-specific options."""


def has_public_address(platform: Platform) -> bool:
    """Whether the platform's machines get a public address, which the controller connects to."""
    return platform.connect in (None, "public")


COMMON_KEYS = frozenset(
    {"id", "provider", "accelerator", "expect", "environments", "optional", "options"}
)
"""Keys that platforms of every provider have."""


_DEVICE_KINDS = {"nvidia": "cuda", "amd": "cuda", "intel": "xpu", "google": "xla"}


def device_kind(platform: Platform) -> str | None:
    """Return torch's name of the required accelerator; None without one."""
    if platform.accelerator is not None:
        return _DEVICE_KINDS[platform.accelerator.vendor]
    return "xla" if platform.accelerator_type else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """Selects jobs for platforms."""

    __pydantic_config__ = STRICT

    id: str | None = None
    """One job of the payload."""
    select: str | None = None
    """A pattern of job ids, in place of `id`."""
    on: tuple[str, ...] | Literal["all"] = "all"
    """Platforms."""
    idle_timeout_minutes: float | None = None
    """Minutes without output and events after which a job hangs; overrides payload.toml."""


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
    """The job selections."""
    payload: PayloadSource | Literal["builtin"] = "builtin"
    """Tests, demos, benchmarks and use cases."""
    baseline: Baseline | None = None
    """The baseline of paired benchmarks."""
    environments: tuple[str, ...] = ("image",)
    """Names of environments in payload.toml."""
    limits: Limits = field(default_factory=Limits)
    """Limits of money, time and machines."""
    secrets: dict[str, dict[Literal["from"], Literal["env"]]] = field(default_factory=dict)
    """Environment variables of the controller that jobs may receive."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell of the matrix with its jobs."""

    id: str
    """The platform's id, or ``platform.environment`` where it has several environments."""
    platform: Platform
    environment: str
    jobs: tuple[str, ...]
    """Ids, in the manifest's order."""


def expand(matrix: Matrix, manifest: Manifest) -> tuple[CellPlan, ...]:
    """Return the cells of a valid matrix, in the matrix's order."""
    cells = []
    for platform in matrix.platforms:
        names = platform.environments or matrix.environments
        jobs = jobs_on(platform.id, matrix, manifest)
        for name in names:
            cell_id = platform.id if len(names) == 1 else f"{platform.id}.{name}"
            cells.append(CellPlan(cell_id, platform, name, jobs))
    return tuple(cells)


def jobs_on(platform_id: str, matrix: Matrix, manifest: Manifest) -> tuple[str, ...]:
    """Return ids of the jobs for a platform, in the manifest's order."""
    return tuple(job.id for job, unfit in _selected_on(platform_id, matrix, manifest) if not unfit)


def jobs_left_out(matrix: Matrix, manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each selected job that cannot run on a platform; one for all others.

    Selecting a job that cannot run by its id is an error, which `check_matrix` reports.
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
    """Return why the job can run on no machine of the platform; empty if the job may run."""
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
    """Each job that is selected on the platform, and why it cannot run there."""
    platform = next((one for one in matrix.platforms if one.id == platform_id), None)
    chosen = [s for s in matrix.jobs if s.on == "all" or platform_id in s.on]
    for job in manifest.job:
        if any(selects(s, job.id) for s in chosen):
            yield job, why_unfit(job, platform) if platform else ""


def idle_timeouts_of(job_id: str, platform_id: str, matrix: Matrix) -> frozenset[float]:
    """Return a job's idle timeouts on a platform, in minutes; one at most in a valid matrix."""
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
