"""The ``environment`` event: which Python, torch, packages and devices the jobs really get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Mapping

from . import bounded, interpreters, probe
from .layout import Attempt
from .masking import JsonValue

_PACKAGES_TIMEOUT_S = 120.0
_TORCH_TIMEOUT_S = 300.0

_PACKAGES = interpreters.answering(
    interpreters.PACKAGES + "\nimport platform",
    '{"python": platform.python_version(), "packages": packages()}',
)

_TORCH = interpreters.answering(
    """
import torch
def devices():
    for n in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        p = torch.cuda.get_device_properties(n)
        uuid = getattr(p, "uuid", None)
        yield {"name": p.name, "uuid": None if uuid is None else str(uuid),
               "memory_bytes": p.total_memory, "compute_capability": f"{p.major}.{p.minor}"}
found = {"torch": torch.__version__, "cuda": torch.version.cuda,
         "hip": getattr(torch.version, "hip", None), "torch_devices": [], "error": None}
try:
    found["torch_devices"] = list(devices())
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
""",
    "found",
)


@dataclass(frozen=True)
class Asker:
    """Runs a script in the overlay, the way jobs run."""

    attempt: Attempt
    variables: Mapping[str, str]
    account: bounded.Account
    tick: Callable[[], None]

    def ask(self, script: str, *arguments: str, timeout_s: float) -> bounded.Answer:
        """Run the script with the overlay's Python in the payload's folder."""
        return bounded.run(
            (str(self.attempt.python), "-c", script, *arguments),
            timeout_s=timeout_s,
            env=self.variables,
            cwd=self.attempt.payload,
            account=self.account,
            tick=self.tick,
        )


def gather(asker: Asker, warn: Callable[[str], None]) -> Dict[str, JsonValue]:
    """Return what the ``environment`` event holds, except what is said about users."""
    answer = asker.ask(_PACKAGES, timeout_s=_PACKAGES_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        warn(f"the overlay's packages cannot be listed: {_why(answer)}")
        found = {"python": None, "packages": {}}
    packages = found["packages"]
    assert isinstance(packages, Mapping)
    torch = _torch(asker, warn) if "torch" in packages else {}
    return {
        "python": found["python"],
        "python_path": str(asker.attempt.python),
        "torch": torch.get("torch", packages.get("torch")),
        "cuda": torch.get("cuda"),
        "hip": torch.get("hip"),
        "xla": packages.get("torch-xla"),
        "packages": dict(packages),
        "machine": probe.machine(asker.attempt.folder),
        "torch_devices": torch.get("torch_devices", []),
    }


def _torch(asker: Asker, warn: Callable[[str], None]) -> Mapping[str, JsonValue]:
    """Import torch in a process of its own: it may hang, or take the process down."""
    answer = asker.ask(_TORCH, timeout_s=_TORCH_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        warn(f"torch is installed but does not import: {_why(answer)}")
        return {}
    if found.get("error") is not None:
        warn(f"torch does not list its devices: {found['error']}")
    return found


def _why(answer: bounded.Answer) -> str:
    if answer.timed_out:
        return "no answer in time"
    return answer.text.strip()[-1_000:] or f"exit code {answer.exit_code}"
