"""Keeps jobs from the cloud's metadata server, which gives the machine's keys to every process.

User data there contains the machine's private host key. A packet filter for the jobs' user rejects
each connection to the server; the agent and the system's services can still connect. A machine
without a packet filter gets a routing rule, which a socket that is bound to a device bypasses; the
trial connection detects that.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Callable, Dict, Tuple

from . import bounded_process

ADDRESS = "169.254.169.254"
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_TIMEOUT_S = 20.0
_PRIORITY = "90"
"""Priority of the routing rule: local addresses have 0, all other rules come after 32,000."""
_TCP = "6"
"""Number of the protocol TCP: small images have no /etc/protocols with names."""
_WAYS: Dict[str, Callable[[str], Tuple[Tuple[str, ...], ...]]] = {
    "nft": lambda user: (("; ".join((
        "add table ip seatrial", "delete table ip seatrial", "add table ip seatrial",
        "add chain ip seatrial output { type filter hook output priority 0; }",
        f"add rule ip seatrial output meta skuid {user} ip daddr {ADDRESS} tcp dport != 53 reject",
    )),),),
    "iptables": lambda user: ((
        *("-w", "5", "-I", "OUTPUT", "-m", "owner", "--uid-owner", user, "-d", ADDRESS),
        *("-p", _TCP, "-m", "tcp", "!", "--dport", "53", "-j", "REJECT"),
    ),),
    "ip": lambda user: tuple(
        (
            *("rule", "add", "pref", _PRIORITY, "uidrange", f"{user}-{user}", "to", ADDRESS),
            *("ipproto", _TCP, "dport", ports, "prohibit"),
        )
        for ports in ("1-52", "54-65534")
    ),
}  # fmt: skip
"""Arguments of each program, the strongest first. Not port 53: on Google's machines the server is
the name server, too.
"""
_THERE = "File exists"
"""Error message of ``ip`` for a routing rule that exists already."""
_TRY = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def attempt(device):
    with socket.socket() as client:
        client.settimeout(5)
        try:
            if device:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            client.connect((sys.argv[1], 80))
        except OSError as error:
            return f"no connection: {error}"
        return f"it answers through {device or 'the routes'}"
devices = ["", *(name for _, name in socket.if_nameindex())]
with ThreadPoolExecutor(len(devices)) as pool:
    said = list(pool.map(attempt, devices))
print(next((one for one in said if one.startswith("it")), said[0]))
"""


def prohibit(account: bounded_process.Account, tick: Callable[[], None]) -> str:
    """Prohibit TCP from the account to the metadata server, except for DNS.

    Args:
        account: The jobs' user; None is the agent's own, which is not restricted.
        tick: Called while programs run.

    Returns:
        Why no program could do it; empty if one did.
    """
    if account is None:
        return "jobs run as the agent's own user"
    errors = ""
    for name, way in _WAYS.items():
        program = shutil.which(name, path=_PLACES)
        if program is None:
            continue
        done = [
            bounded_process.run((program, *words), timeout_s=_TIMEOUT_S, tick=tick)
            for words in way(str(account[0]))
        ]
        if all(one.ok or _THERE in one.text for one in done):
            return ""
        errors = "; ".join(filter(None, (errors, *(f"{name}: {one.text.strip()}" for one in done))))
    return errors or "this machine has none of the programs nft, iptables and ip"


def close(
    account: bounded_process.Account, python: Path, tick: Callable[[], None]
) -> Tuple[bool, str]:
    """Prohibit TCP from the account to the metadata server, except for DNS, and try it.

    Args:
        account: The jobs' user; None is the agent's own, which is not restricted.
        python: An interpreter that the account may run.
        tick: Called while programs run.

    Returns:
        Whether the account's connection failed, and the output of that try.
    """
    errors = prohibit(account, tick)
    if account is None or not any(shutil.which(name, path=_PLACES) for name in _WAYS):
        return False, errors
    tried = bounded_process.run(
        (str(python), "-I", "-c", _TRY, ADDRESS), timeout_s=_TIMEOUT_S, account=account, tick=tick
    )
    said = tried.text.strip()[-200:]
    if tried.ok and said.startswith("no connection"):
        return True, said
    return False, f"{ADDRESS}: {said or 'the trial did not end'}; {errors}".rstrip("; ")
