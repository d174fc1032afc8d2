"""The ``environment`` event: which Python, torch, packages and devices the jobs really get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Mapping, NamedTuple

from . import bounded_process, interpreters, probe
from .evidence_text import JsonValue
from .layout import AttemptFolder

_PACKAGES_TIMEOUT_S = 120.0
_TORCH_TIMEOUT_S = 300.0

_PACKAGES = interpreters.answering(
    """
import importlib.util, os, platform, sys
def of_interpreter():
    # Those that are neither installed for the jobs nor of the payload.
    first = {}
    for one in distributions():
        first.setdefault(normal(one.name), os.path.join(os.path.realpath(one.home), ""))
    own = tuple(os.path.join(os.path.realpath(each), "") for each in (sys.prefix, os.getcwd()))
    return sorted(name.replace("_", "-") for name, at in first.items() if not at.startswith(own))
def torch():
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return None
    if not spec.submodule_search_locations:
        return {}
    import runpy
    told = runpy.run_path(spec.submodule_search_locations[0] + "/version.py")
    names = (("torch", "__version__"), ("cuda", "cuda"), ("hip", "hip"))
    return {name: told.get(key) for name, key in names}
try:
    built = torch()
except Exception:
    built = {}
""",
    '{"python": platform.python_version(), "packages": packages(), "built": built,'
    ' "of_interpreter": of_interpreter()}',
)
"""Reads torch's build from its ``version.py``, as importing torch takes more than a second.

``built`` is null where no torch can be imported.
"""

_TORCH_DEVICES = interpreters.answering(
    """
import torch
def devices():
    for n in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        p = torch.cuda.get_device_properties(n)
        uuid = getattr(p, "uuid", None)
        yield {"name": p.name, "uuid": None if uuid is None else str(uuid),
               "memory_bytes": p.total_memory, "compute_capability": f"{p.major}.{p.minor}"}
found = {"devices": [], "error": None}
try:
    found["devices"] = list(devices())
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
""",
    "found",
)
_GPU_NODES = ("/dev/nvidiactl", "/dev/kfd")
"""Device nodes of the drivers that torch requires."""


class OverlayFacts(NamedTuple):
    """The overlay's interpreter and packages, and whether torch can be imported there."""

    event: Dict[str, JsonValue]
    """The content of the ``environment`` event, without the part about users."""
    has_torch: bool
    """False only where it is certain that no torch can be imported."""


@dataclass(frozen=True)
class Asker:
    """Runs a script in the overlay, the way jobs run."""

    attempt: AttemptFolder
    variables: Mapping[str, str]
    account: bounded_process.Account
    tick: Callable[[], None]

    def ask(self, script: str, *arguments: str, timeout_s: float) -> bounded_process.ProgramOutput:
        """Run the script with the overlay's Python in the payload's folder."""
        return bounded_process.run(
            (str(self.attempt.python), "-c", script, *arguments),
            timeout_s=timeout_s,
            env=self.variables,
            cwd=self.attempt.payload,
            account=self.account,
            tick=self.tick,
        )


def gather(asker: Asker, warn: Callable[[str], None]) -> OverlayFacts:
    """Return the facts about the overlay and the machine."""
    answer = asker.ask(interpreters.packages_program() + _PACKAGES, timeout_s=_PACKAGES_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        warn(f"the overlay's packages cannot be listed: {_why(answer)}")
        found = {"python": None, "packages": {}, "built": {}, "of_interpreter": []}
    packages, built = found["packages"], found["built"]
    assert isinstance(packages, Mapping)
    has_torch = built is not None
    built = built or {}
    assert isinstance(built, Mapping)
    machine = probe.machine(asker.attempt.folder)
    has_gpu = bool(machine["devices"]) or any(Path(node).exists() for node in _GPU_NODES)
    event: Dict[str, JsonValue] = {
        "python": found["python"],
        "python_path": str(asker.attempt.python),
        "torch": built.get("torch") or packages.get("torch"),
        "cuda": built.get("cuda"),
        "hip": built.get("hip"),
        "xla": packages.get("torch-xla"),
        "packages": dict(packages),
        "interpreter_packages": found["of_interpreter"],
        "machine": machine,
        "torch_devices": _torch_devices(asker, warn) if has_gpu and "torch" in packages else [],
    }
    return OverlayFacts(event, has_torch)


def _torch_devices(asker: Asker, warn: Callable[[str], None]) -> JsonValue:
    """Return torch's devices from a separate process, because the import may hang or crash."""
    answer = asker.ask(_TORCH_DEVICES, timeout_s=_TORCH_TIMEOUT_S)
    found = interpreters.extract(answer.text) if answer.ok else None
    if found is None:
        warn(f"torch is installed but does not import: {_why(answer)}")
        return []
    if found.get("error") is not None:
        warn(f"torch does not list its devices: {found['error']}")
    return found["devices"]


def _why(answer: bounded_process.ProgramOutput) -> str:
    if answer.timed_out:
        return "no answer in time"
    return answer.text.strip()[-1_000:] or f"exit code {answer.exit_code}"
