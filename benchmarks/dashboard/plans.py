"""The simulated product: its payload, its matrices, and its machines."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from orchestrator.adapters.files.documents import FileDocuments
from orchestrator.domain.matrix import (
    Accelerator,
    JobSelection,
    Limits,
    Matrix,
    Metadata,
    Platform,
    Subject,
)

PRODUCT = "aurora-trials"
SUBJECT = "aurora"
SUITES = ("unit", "integration")
COMMANDS = ("train-demo", "serving")
BENCHMARK = "kernels"
MEASURED = ("aws-l4", "gcp-a100")
"""Platforms that run the benchmarks."""

PAYLOAD = f"""\
schema = 1
name = "{PRODUCT}"
version = "3.1"
[env.image]
[env.cu130]
pip = ["torch==2.13.0+cu130"]
[[job]]
id = "unit"
kind = "suite"
title = "Unit tests"
pytest = ["tests/unit"]
[[job]]
id = "integration"
kind = "suite"
title = "Integration tests"
pytest = ["tests/integration"]
timeout_minutes = 45
[[job]]
id = "train-demo"
kind = "demo"
title = "Training demo"
command = ["{{python}}", "demos/train.py"]
[[job]]
id = "serving"
kind = "use-case"
title = "Serving a model"
command = ["{{python}}", "use_cases/serve.py"]
[[job]]
id = "kernels"
kind = "benchmark"
title = "Kernels"
command = ["{{python}}", "benchmarks/kernels.py"]
"""
MANIFEST = FileDocuments().read_manifest(PAYLOAD, "payload.toml")


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of machine, its availability and its price."""

    id: str
    provider: str
    instance: str
    vendor: str
    device: str
    capability: str
    driver: str
    usd_per_hour: str
    zones: tuple[str, ...]
    market: str = "on-demand"
    given: float = 0.99
    """Share of nights on which such a machine is available."""
    environments: tuple[str, ...] = ()
    speed: float = 1.0

    @property
    def platform(self) -> Platform:
        """The platform of a matrix for this machine."""
        known = self.vendor in ("nvidia", "amd", "google")
        accelerator = None
        if known:
            accelerator = Accelerator(vendor=self.vendor, name=self.device)  # type: ignore[arg-type]
        return Platform(
            id=self.id,
            provider=self.provider,
            instance_type=self.instance if self.provider != "tpu" else None,
            accelerator_type="v5litepod-1" if self.provider == "tpu" else None,
            runtime_version="v2-alpha-tpuv5-lite" if self.provider == "tpu" else None,
            accelerator=accelerator if self.provider != "tpu" else None,
            locations=self.zones,
            market=("spot", "on-demand") if self.market == "spot" else None,
            environments=self.environments or None,
            optional=self.id == "gcp-h100",
        )


_US = ("us-east-1/us-east-1a", "us-east-1/us-east-1b", "eu-west-1/eu-west-1c")
_GCP = ("us-central1-a", "us-central1-b", "europe-west4-a")
_L4, _A100 = "580.95.05", "570.172.08"
MACHINES = (
    Machine("aws-l4", "aws", "g6.xlarge", "nvidia", "L4", "8.9", _L4, "0.8048", _US, "spot"),
    Machine(
        "gcp-a100",
        "gcp",
        "a2-highgpu-1g",
        "nvidia",
        "A100-SXM4-40GB",
        "8.0",
        _A100,
        "3.6734",
        _GCP,
        given=0.95,
        environments=("image", "cu130"),
        speed=3.1,
    ),
    Machine(
        "gcp-tpu-v5e", "tpu", "v5litepod-1", "google", "TPU v5e", "", "", "1.2000",
        ("us-west4-a", "us-east5-b"), given=0.86, speed=2.2,
    ),
    Machine("aws-graviton", "aws", "c7g.2xlarge", "", "", "", "", "0.2900", _US, speed=0.4),
    Machine("gcp-t4", "gcp", "n1-standard-4", "nvidia", "T4", "7.5", _A100, "0.5400", _GCP, "spot"),
    Machine(
        "aws-a10g", "aws", "g5.xlarge", "nvidia", "A10G", "8.6", _L4, "1.0060", _US, speed=1.4
    ),
    Machine(
        "gcp-h100", "gcp", "a3-highgpu-1g", "nvidia", "H100 80GB HBM3", "9.0", _L4, "10.9800",
        _GCP, given=0.6, speed=6.0,
    ),
    Machine("gcp-l4", "gcp", "g2-standard-4", "nvidia", "L4", "8.9", _A100, "0.7068", _GCP),
    Machine("aws-x86", "aws", "c7i.2xlarge", "", "", "", "", "0.3570", _US, "spot", speed=0.5),
)  # fmt: skip


def subject(version: str) -> Subject:
    """Return the subject of a run."""
    return Subject(name=SUBJECT, version=version, package=f"{SUBJECT}=={version}")


def nightly(version: str, machines: tuple[Machine, ...]) -> Matrix:
    """Return the matrix of the tests."""
    return _matrix("nightly", version, machines, (*SUITES, *COMMANDS))


def measuring(version: str, machines: tuple[Machine, ...]) -> Matrix:
    """Return the matrix of the benchmarks."""
    return _matrix("benchmarks", version, machines, (BENCHMARK,))


def _matrix(
    name: str, version: str, machines: tuple[Machine, ...], jobs: tuple[str, ...]
) -> Matrix:
    return Matrix(
        metadata=Metadata(name=name),
        subject=subject(version),
        platforms=tuple(machine.platform for machine in machines),
        jobs=tuple(JobSelection(id=job) for job in jobs),
        limits=Limits(max_usd=Decimal("60.00"), max_minutes=90.0),
    )
