"""Payload shipping against scp and rsync, as a ratio in one run, over SSH on this computer.

Two payloads: one file of 200 MB of random bytes, and a tree of 2,000 files (about 43 MB). Every
way starts from what it is used with (ours: the archive, as the controller packed it; scp and
rsync: the folder), makes its own connection with the same key to the same server, and ends when
the whole folder is in a place that was empty before. So each round counts one TCP connection, one
key exchange and one sign-in for each of the three; ours also looks for a Python there, asks
whether the payload is there already, and checks a sha256, which the others do not. Rounds are
interleaved, in an order that turns by one each round, after one round that is not counted. Both
ends lie in memory where there is room (``--folder`` names another place), as making 2,000 files
on a slow disk would hide every difference.

The ratio is taken within each round, as the computer's own speed drifts between them; its median
over the rounds is compared. Floor: 0.8 of the faster of the two; otherwise the exit code is 1.
Goal, printed only: the lower end of the ratio's 90 % bootstrap interval is at least 0.97.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from orchestrator.adapters.files.archive import FilePayloadArchives  # noqa: E402
from orchestrator.adapters.files.documents import FileDocuments  # noqa: E402
from runners.shell import open_shell  # noqa: E402
from runners.workspace import ShellWorkspace  # noqa: E402
from tests.ssh_hosts import SshHost, sshd_missing  # noqa: E402

FLOOR = 0.8
GOAL = 0.97
FILE_BYTES = 200_000_000
TREE_FILES = 2000
TREE_MEAN_BYTES = 21_350
READ_BYTES = 1024 * 1024
RESAMPLES = 4000
MANIFEST = """
schema = 1
name = "shipping"
version = "1"
[[job]]
id = "job"
kind = "demo"
title = "Job"
command = ["true"]
"""
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Payload:
    """What is shipped: as a folder and as its archive."""

    name: str
    folder: Path
    archive: Path
    digest: str
    size_bytes: int


Way = Callable[[SshHost, Payload, Path], None]


def ours(host: SshHost, payload: Payload, target: Path) -> None:
    """Ship as the controller does: a new connection, then `ShellWorkspace.put_archive`."""
    shell = open_shell(host.endpoint(), keys_dir=host.keys_dir)
    workspace = ShellWorkspace(shell, base=str(target))
    assert workspace.put_archive("payloads", payload.digest, lambda: _chunks(payload.archive))
    shell.close()


def scp(host: SshHost, payload: Payload, target: Path) -> None:
    """Ship the folder's content with ``scp -r -p``."""
    target.mkdir()
    options = ["-q", "-r", "-p", "-P", str(host.port), *_options(host)]
    where = f"{host.user}@127.0.0.1:{target}/there"
    subprocess.run(["scp", *options, str(payload.folder), where], check=True)


def rsync(host: SshHost, payload: Payload, target: Path) -> None:
    """Ship the folder's content with ``rsync -a --whole-file``."""
    target.mkdir()
    transport = " ".join(["ssh", "-p", str(host.port), *_options(host)])
    where = f"{host.user}@127.0.0.1:{target}/there/"
    command = ["rsync", "-a", "--whole-file", "-e", transport, f"{payload.folder}/", where]
    subprocess.run(command, check=True)


WAYS: Mapping[str, Way] = {"seatrial": ours, "scp": scp, "rsync": rsync}


def _options(host: SshHost) -> list[str]:
    known = host.folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{host.port} {host.host_key()}\n")
    key = host.keys_dir / host.endpoint().key_file
    return ["-F", "none", "-i", str(key), "-o", f"UserKnownHostsFile={known}"]


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while data := stream.read(READ_BYTES):
            yield data


def make_payloads(root: Path) -> tuple[Payload, ...]:
    """Return the two payloads, with contents that do not compress."""
    one = root / "file"
    one.mkdir(parents=True)
    (one / "weights.bin").write_bytes(os.urandom(FILE_BYTES))
    sizes = random.Random(7)
    tree = root / "tree"
    for number in range(TREE_FILES):
        path = tree / f"package_{number % 40:02}" / f"module_{number:04}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(int(TREE_MEAN_BYTES * (0.5 + sizes.random()))))
    return _payload("file", one), _payload("tree", tree)


def _payload(name: str, folder: Path) -> Payload:
    (folder / "payload.toml").write_text(MANIFEST)
    packed = FilePayloadArchives(FileDocuments()).pack(folder, into=folder.parent)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Payload(name, folder, packed.path, packed.digest, size_bytes)


def measure(host: SshHost, payload: Payload, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way, by counted round."""
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    names = list(WAYS)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            taken_s = _once(host, payload, WAYS[name])
            if number > 0:
                seconds[name].append(taken_s)
    return seconds


def _once(host: SshHost, payload: Payload, way: Way) -> float:
    target = host.folder / "target"
    began = time.perf_counter()
    way(host, payload, target)
    taken_s = time.perf_counter() - began
    arrived = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert arrived == payload.size_bytes, "not everything arrived"
    shutil.rmtree(target)
    os.sync()  # or the next way would pay for writing this one's pages back
    return taken_s


def ratio(seconds: Mapping[str, list[float]]) -> float:
    """Return the median over the rounds of our speed over that of the faster other way."""
    mine = seconds["seatrial"]
    return min(
        statistics.median(theirs / our for theirs, our in zip(seconds[name], mine, strict=True))
        for name in seconds
        if name != "seatrial"
    )


def interval(seconds: Mapping[str, list[float]]) -> tuple[float, float]:
    """Return the 5 % and 95 % points of the ratio, by bootstrap over whole rounds."""
    draw = random.Random(1)
    rounds = range(len(seconds["seatrial"]))
    found = []
    for _ in range(RESAMPLES):
        chosen = [draw.choice(rounds) for _ in rounds]
        found.append(ratio({name: [all_s[i] for i in chosen] for name, all_s in seconds.items()}))
    found.sort()
    return found[int(0.05 * RESAMPLES)], found[int(0.95 * RESAMPLES)]


def report(payload: Payload, seconds: Mapping[str, list[float]]) -> tuple[float, float]:
    """Print the figures of one payload; return the ratio and its lower end."""
    print(f"\n{payload.name}: {payload.size_bytes / 1e6:.1f} MB")
    for name, taken_s in seconds.items():
        median_s = statistics.median(taken_s)
        spread = f"{min(taken_s):.2f}-{max(taken_s):.2f}"
        speed = payload.size_bytes / 1e6 / median_s
        print(f"  {name:9} median {median_s:6.3f} s  ({spread})  {speed:6.1f} MB/s")
    found = ratio(seconds)
    low, high = interval(seconds)
    met = "met" if low >= GOAL else "MISSED"
    print(f"  ratio to the faster: {found:.2f}  (90 % {low:.2f}-{high:.2f})  goal {GOAL}: {met}")
    return found, low


def _memory() -> Path | None:
    """Return a folder in memory with room for both ends, or None for the temporary folder."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        return MEMORY
    return None


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=_memory(), help="where both ends lie")
    parser.add_argument("--rounds", type=int, default=11, help="counted rounds (at least 5)")
    chosen = parser.parse_args()
    rounds = max(5, chosen.rounds)
    missing = sshd_missing() or next(
        (f"{name} is not installed" for name in ("scp", "rsync") if shutil.which(name) is None),
        None,
    )
    if missing:
        print(f"shipping: cannot be measured here: {missing}", file=sys.stderr)
        return 1
    figures = {}
    with tempfile.TemporaryDirectory(prefix="shipping-", dir=chosen.folder) as root:
        payloads = make_payloads(Path(root) / "payloads")
        with SshHost(Path(root), name="host") as host:
            for payload in payloads:
                figures[payload.name] = report(payload, measure(host, payload, rounds))
    ok = all(found >= FLOOR for found, _ in figures.values())
    words = " ".join(
        f"{name}={found:.2f} (low {low:.2f})" for name, (found, low) in figures.items()
    )
    print(
        f"\nshipping: {words} floor={FLOOR} goal={GOAL} rounds={rounds} {'ok' if ok else 'FLOOR'}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
