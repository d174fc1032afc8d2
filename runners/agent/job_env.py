"""Environment variables of jobs: a small inherited set, then the plan's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Mapping, Optional

from . import processes
from .job_user import User
from .layout import AttemptFolder, on_path
from .plan import PlanEnvironment, PlanJob

_INHERITED = re.compile(
    r"PATH|LANG|LC_\w+|TZ|LD_LIBRARY_PATH|CUDA_\w+|NVIDIA_\w+|ROCR\w*|ROCM\w*|HIP\w*"
)
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def common(
    attempt: AttemptFolder, *, name: str, environment: PlanEnvironment, user: User
) -> Dict[str, str]:
    """Return the environment variables of every process of the attempt.

    Args:
        attempt: The attempt's folders.
        name: The attempt's id.
        environment: The environment, whose variables override inherited ones.
        user: The user of the process.
    """
    inherited = {key: value for key, value in os.environ.items() if _INHERITED.fullmatch(key)}
    path = f"{attempt.venv / 'bin'}:{inherited.get('PATH') or _USUAL_PATH}"
    inherited.update(PATH=path, HOME=user.home, USER=user.name, LOGNAME=user.name)
    return {
        **inherited,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **environment.variables,
        processes.MARK: str(attempt.folder),
        "SEATRIAL_ATTEMPT": name,
    }


def for_job(
    shared: Mapping[str, str],
    *,
    job: PlanJob,
    attempt: AttemptFolder,
    secrets: Mapping[str, str],
    tmp: Optional[str] = None,
) -> Dict[str, str]:
    """Return the variables of one job: its own override shared ones, the agent's override all."""
    folder = attempt.job(job.id)
    given = {
        key: _resolved(value, attempt.payload) if key in job.path_variables else value
        for key, value in {**shared, **job.env}.items()
    }
    given.update({name: secrets[name] for name in job.secrets if name in secrets})
    before = given.get("PYTHONPATH")
    given.update(
        PYTHONPATH=f"{before}:{on_path()}" if before else str(on_path()),
        TMPDIR=tmp or str(folder.tmp),
        SEATRIAL_JOB=job.id,
        SEATRIAL_EVENTS=str(folder.events),
        SEATRIAL_ARTIFACTS=str(folder.artifacts),
        SEATRIAL_PAYLOAD=str(attempt.payload),
    )
    return given


def without_pythonpath(given: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of a pytest that is loaded before any code of the payload.

    Python puts PYTHONPATH in front of the environment's packages, and runs a ``sitecustomize`` that
    it finds there: ``seatrial_start`` puts it back once pytest is loaded.
    """
    rest = {name: value for name, value in given.items() if name != "PYTHONPATH"}
    return {**rest, "SEATRIAL_PYTHONPATH": given.get("PYTHONPATH", "")}


def own_caches(folder: Path, given: Mapping[str, str]) -> Dict[str, str]:
    """Return the variables of compiler caches in the arm's folder, so that arms share no caches.

    Models and data sets are not compiled: their folders are unchanged.
    """
    shared = given.get("XDG_CACHE_HOME") or f"{given['HOME']}/.cache"
    return {
        "XDG_CACHE_HOME": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "HF_HOME": given.get("HF_HOME") or f"{shared}/huggingface",
        "TORCH_HOME": given.get("TORCH_HOME") or f"{shared}/torch",
    }


def _resolved(value: str, root: Path) -> str:
    """Return a path list with absolute entries; relative ones are below the payload's folder."""
    return os.pathsep.join(
        os.path.normpath(root / entry) if entry else str(root) for entry in value.split(os.pathsep)
    )
