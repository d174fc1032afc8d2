"""Keeps jobs from the cloud's metadata server, which gives the machine's keys to every process.

User data there holds the machine's private host key. A routing rule for the jobs' user answers
each connection to the server with "prohibited"; the agent and the system's services still reach it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Callable, Tuple

from . import bounded_process

ADDRESS = "169.254.169.254"
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_TIMEOUT_S = 20.0
_PRIORITY = "90"
"""Rules for local addresses have 0, all others come after 32,000."""
_TCP = "6"
"""Its number: small images have no /etc/protocols with names."""
_PORTS = ("1-52", "54-65534")
"""Not 53: on Google's machines the server is the name server, too."""
_TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), 5).close()
    print("it answers")
except OSError as error:
    print(f"no connection: {error}")
"""


def prohibit(account: bounded_process.Account, tick: Callable[[], None]) -> str:
    """Prohibit TCP from the account to the metadata server, except for DNS.

    Args:
        account: The jobs' user; None is the agent's own, which is not restricted.
        tick: Called while programs run.

    Returns:
        Why a rule could not be added; empty if all were.
    """
    if account is None:
        return "jobs run as the agent's own user"
    ip = shutil.which("ip", path=_PLACES)
    if ip is None:
        return "this machine has no program `ip`"
    users, errors = f"{account[0]}-{account[0]}", ""
    for ports in _PORTS:
        rule = ("uidrange", users, "to", ADDRESS, "ipproto", _TCP, "dport", ports, "prohibit")
        added = bounded_process.run(
            (ip, "rule", "add", "pref", _PRIORITY, *rule), timeout_s=_TIMEOUT_S, tick=tick
        )
        errors = added.text.strip() or errors
    return errors


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
    if account is None or shutil.which("ip", path=_PLACES) is None:
        return False, errors
    tried = bounded_process.run(
        (str(python), "-I", "-c", _TRY, ADDRESS), timeout_s=_TIMEOUT_S, account=account, tick=tick
    )
    said = tried.text.strip()[-200:]
    if tried.ok and said.startswith("no connection"):
        return True, said
    return False, f"{ADDRESS}: {said or 'the trial did not end'}; {errors}".rstrip("; ")
