"""The disk image that every machine of the lab starts from: a bare Debian, and a Python with torch.

Built once, below `.lab/image` in the repository; afterwards it is only read. It is a whole file
system of its own, so that nothing of this computer can be seen in a machine.

    python -m tests.lab.image            build it, or say that it is there
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LAB_FOLDER = Path(__file__).resolve().parents[2] / ".lab"
SUITE = "bookworm"
PYTHON_VERSION = "3.11"  # Debian bookworm's own
PYTORCH = "/opt/pytorch"
TORCH = "torch==2.13.0"
BESIDE_TORCH = ("numpy==2.4.6",)
PACKAGES = (
    "ca-certificates", "cloud-init", "curl", "iproute2", "mount", "nftables", "openssh-server",
    "procps", "psmisc", "python3", "python3-venv", "rsync", "sudo", "tini",
)  # fmt: skip
VERSION = "3"  # of what this module does beyond the names above
DEBIAN_S, TORCH_S = 900.0, 1800.0
_DONE = "built"
_FOLDER = LAB_FOLDER / "image"


class ImageMissingError(RuntimeError):
    """The machine image cannot be had here."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: its file system, and what its making took."""

    root: Path
    built: bool  # now; else it was there
    seconds: float

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk, as `du` counts."""
        command = ["du", "-sx", "--block-size=1", str(self.root)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return int(done.stdout.split()[0])


def find() -> Path | None:
    """The image's root where it was built; needs no network."""
    built = sorted(_FOLDER.glob(f"{_recipe()}-*/{_DONE}"))
    return built[0].parent / "root" if built else None


def require() -> Path:
    """The image's root.

    Raises:
        ImageMissingError: It was not built.
    """
    root = find()
    if root is None:
        raise ImageMissingError(
            "the lab's machine image was not built: run `python -m tests.lab.image`"
        )
    return root


def ensure(torch: str = TORCH) -> Image:
    """Build the image unless it is there. Needs root, Debian's registry and pip's index.

    Raises:
        ImageMissingError: It cannot be built here.
    """
    started = time.monotonic()
    with _only_one():
        folder = _FOLDER / f"{_recipe()}-{_digest(torch)}"
        built = not (folder / _DONE).exists()
        if built:
            _build(folder, torch)
    return Image(folder / "root", built, time.monotonic() - started)


def _recipe() -> str:
    return _digest("\n".join((VERSION, SUITE, *PACKAGES, *BESIDE_TORCH)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def _only_one() -> Iterator[None]:
    LAB_FOLDER.mkdir(exist_ok=True)
    with (LAB_FOLDER / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, torch: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ImageMissingError("the lab's machine image can only be built as root on Debian")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root = folder / "root"
    _debian(root)
    _torch(root, torch)
    _clean(root)
    (folder / _DONE).touch()
    _forget_others(folder)


def _debian(root: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        _step("apt-get", "update", "-qq", limit_s=DEBIAN_S)
        _step("apt-get", "install", "-y", "-qq", "--no-install-recommends", "mmdebstrap",
              limit_s=DEBIAN_S)  # fmt: skip
    command = ["mmdebstrap", "--mode=root", "--variant=apt", "--components=main", "--quiet"]
    command += ['--aptopt=APT::Install-Recommends "false"', '--aptopt=Acquire::Retries "5"']
    command += _proxies()
    _step(*command, f"--include={','.join(PACKAGES)}", SUITE, str(root), limit_s=DEBIAN_S)


def _proxies() -> list[str]:
    """The way to the registry that apt was told on this computer."""
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True)
    return [f"--aptopt={line}" for line in dump.stdout.splitlines() if _is_proxy(line)]


def _is_proxy(line: str) -> bool:
    name, _, value = line.partition(" ")
    return name in ("Acquire::http::Proxy", "Acquire::https::Proxy") and value != '"";'


def _torch(root: Path, torch: str) -> None:
    wheels = root / "wheels"
    wanted = [*shlex.split(torch), *BESIDE_TORCH]
    _step(sys.executable, "-m", "pip", "download", "--quiet", "--retries=10", "--only-binary=:all:",
          "--implementation=cp", f"--python-version={PYTHON_VERSION}", f"--dest={wheels}",
          *wanted, limit_s=TORCH_S)  # fmt: skip
    # Inside the image: its own Python and its own pip, and nothing but these wheels.
    inside = ["chroot", str(root)]
    _step(*inside, "/usr/bin/python3", "-m", "venv", PYTORCH, limit_s=TORCH_S, clean=True)
    files = [f"/wheels/{path.name}" for path in sorted(wheels.iterdir())]
    _step(*inside, f"{PYTORCH}/bin/pip", "install", "--quiet", "--no-index", "--no-deps", *files,
          limit_s=TORCH_S, clean=True)  # fmt: skip
    shutil.rmtree(wheels)
    _step(*inside, f"{PYTORCH}/bin/python", "-c", "import numpy, torch", limit_s=120, clean=True)


def _clean(root: Path) -> None:
    """What belongs to one machine, not to an image."""
    for path in (root / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    for name in ("etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")


def _forget_others(folder: Path) -> None:
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other)


def _step(*command: str, limit_s: float, clean: bool = False) -> None:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    bare = {"PATH": path, "LC_ALL": "C.UTF-8"}
    full = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, env=bare if clean else full, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=limit_s,
    )  # fmt: skip
    if done.returncode:
        tail = (done.stdout + done.stderr)[-2000:]
        raise ImageMissingError(f"{shlex.join(command)} ended with {done.returncode}:\n{tail}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.image", description=__doc__)
    parser.add_argument("--torch", default=TORCH, help="what pip is asked for (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        image = ensure(options.torch)
    except ImageMissingError as error:
        print(error, file=sys.stderr)
        return 1
    did = "built" if image.built else "was there"
    print(f"{image.root}: {did}, {image.seconds:.1f} s, {image.size_bytes / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
