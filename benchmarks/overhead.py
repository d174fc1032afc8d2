"""What Seatrial adds to a job that does nothing, on an SSH host: against scp, ssh, scp by hand.

Both arms ship the payload (cold, a fresh home on the host each time), run one Python process there
and bring its output back. Ours also builds an overlay environment, probes the machine, numbers and
stores the evidence, and cleans up: this is what that costs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.e2e.home import Home, a_home
from tests.e2e.payloads import matrix
from tests.e2e.test_ssh_hosts import platform
from tests.ssh_hosts import SshHost, sshd_missing

ROUNDS = 5
MANIFEST = """schema = 1
name = "empty"
version = "1"
[[job]]
id = "nothing"
kind = "demo"
command = ["{python}", "-c", "print('nothing')"]
"""


def by_hand(host: SshHost, payload: Path, scratch: Path) -> float:
    """Return the seconds of the work by scp and ssh."""
    options = [
        *("-i", str(host.keys_dir / f"{host.name}_key"), "-o", "IdentitiesOnly=yes"),
        *("-o", f"UserKnownHostsFile={scratch / 'known_hosts'}", "-o", "BatchMode=yes"),
    ]
    (scratch / "known_hosts").write_text(f"[127.0.0.1]:{host.port} {host.host_key()}\n")
    at, there = f"{host.user}@127.0.0.1", f"{host.home}/by-hand"
    began = time.perf_counter()
    port = str(host.port)
    run = ["ssh", *options, "-p", port, at]
    copy = ["scp", "-q", *options, "-P", port, "-r"]
    subprocess.run([*copy, str(payload), f"{at}:{there}"], check=True)
    job = f"cd {there} && python3 -c \"print('nothing')\" > nothing.txt"
    subprocess.run([*run, job], check=True)
    subprocess.run([*copy, f"{at}:{there}/nothing.txt", str(scratch)], check=True)
    took = time.perf_counter() - began
    shutil.rmtree(there)
    return took


def by_seatrial(home: Home, host: SshHost, file: Path) -> tuple[float, dict[str, float]]:
    """Return the seconds from launch to the end of the run, and the seconds in each state."""
    shutil.rmtree(host.home / ".seatrial", ignore_errors=True)
    began = time.perf_counter()
    home.seatrial("run", str(file))
    took = time.perf_counter() - began
    steps = home.json("show", "latest")["cells"][0]["transitions"]
    times = [datetime.fromisoformat(step["at"]) for step in steps]
    pairs = zip(steps, times, times[1:], strict=False)
    return took, {step["to_state"]: (end - begin).total_seconds() for step, begin, end in pairs}


def main() -> int:
    """Print both arms and their ratio; there is no floor."""
    if sshd_missing():
        print(f"overhead: not measured: {sshd_missing()}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, a_home(Path(folder) / "home") as home:
        scratch = Path(folder)
        payload = scratch / "payload"
        payload.mkdir()
        (payload / "payload.toml").write_text(MANIFEST)
        with SshHost(scratch / "hosts") as host:
            (home.path / "keys").mkdir(parents=True)
            shutil.copy(host.keys_dir / f"{host.name}_key", home.path / "keys")
            file = matrix(scratch / "m.yaml", payload, platform(host))
            by_seatrial(home, host, file)
            hands, ours, phases = [], [], []
            for _ in range(ROUNDS):
                hands.append(by_hand(host, payload, scratch))
                took, spent = by_seatrial(home, host, file)
                ours.append(took)
                phases.append(spent)
    for state in phases[0]:
        print(f"  {state:<11} {statistics.median(p[state] for p in phases):6.2f} s")
    added = [a - b for a, b in zip(ours, hands, strict=True)]
    print(
        f"overhead: seatrial {statistics.median(ours):.2f} s, by hand "
        f"{statistics.median(hands):.2f} s, added {statistics.median(added):.2f} s "
        f"[{min(added):.2f}, {max(added):.2f}] per run of one empty job, {ROUNDS} rounds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
