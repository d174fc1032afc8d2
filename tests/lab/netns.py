"""The network of one machine: a namespace that has its addresses, wired to the lab's own."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.lab import kernel, seal
from tests.lab.cloud_facts import uplink_mbit_s

BURST_BYTES = 256 * 1024
METADATA_ADDRESS = "169.254.169.254"
_numbers = itertools.count(1)


class Wire:
    """A machine's network namespace and the wire to it; `remove` ends both."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Lay it.

        Raises:
            subprocess.CalledProcessError: An address is another machine's already.
        """
        self.addresses = tuple(addresses)
        self.device = f"{seal.PREFIX}{os.getpid():x}n{next(_numbers)}"
        self.namespace = kernel.new_network()
        self._cut = self._off = False
        self._turn = threading.Lock()
        try:
            self._lay()
        except BaseException:
            self.remove()
            raise

    def _lay(self) -> None:
        end = f"/proc/self/fd/{self.namespace}"
        command = ("ip", "link", "add", self.device, "type", "veth", "peer", "name", "eth0",
                   "netns", end)  # fmt: skip
        subprocess.run(command, check=True, pass_fds=(self.namespace,), timeout=20)
        ipv6 = Path(f"/proc/sys/net/ipv6/conf/{self.device}/disable_ipv6")
        if ipv6.exists():
            ipv6.write_text("1")
        kernel.in_network(self.namespace, self._lay_far_end)
        # What is sent to the machine, at the speed of an uplink.
        shaped = f"tbf rate {uplink_mbit_s()}mbit burst {BURST_BYTES} latency 100ms"
        subprocess.run(
            ("tc", "qdisc", "add", "dev", self.device, "root", *shaped.split()),
            check=True,
            timeout=20,
        )
        _ip(f"link set {self.device} up", *self._routes("add"))

    def _lay_far_end(self) -> None:
        _ip(
            "link set lo up",
            f"addr add {METADATA_ADDRESS}/32 dev lo",
            *(f"addr add {address}/32 dev eth0" for address in self.addresses),
            "link set eth0 up",
            f"route add default via {seal.ADDRESS} dev eth0 onlink",
            # A guest's routing rules come before the table of local addresses, where the metadata
            # server is: of a real one, packets leave the machine.
            "rule add pref 32765 lookup local",
            "rule delete pref 0",
        )

    def cut(self) -> None:
        """Let every packet to and from the machine vanish."""
        with self._turn:
            self._cut = True
            self._set()

    def heal(self) -> None:
        """Carry packets again, if the machine is on."""
        with self._turn:
            self._cut = False
            self._set()

    def power(self, *, on: bool) -> None:
        """Nothing answers, not even with a refusal, where the machine is off."""
        with self._turn:
            self._off = not on
            self._set()

    def _set(self) -> None:
        if self.namespace < 0:
            return
        if self._cut or self._off:
            _ip(f"link set {self.device} down")
        else:
            _ip(f"link set {self.device} up", *self._routes("replace"))

    def _routes(self, verb: str) -> list[str]:
        end = f"dev {self.device} src {seal.ADDRESS}"
        return [f"route {verb} {address}/32 {end}" for address in self.addresses]

    def listen(self, address: str, port: int) -> socket.socket:
        """Make a listening socket inside the machine's network, held by this process."""
        return kernel.in_network(self.namespace, lambda: socket.create_server((address, port)))

    def remove(self) -> None:
        """Take the wire away; what is sent to the addresses now vanishes. Twice is no error."""
        with self._turn:
            namespace, self.namespace = self.namespace, -1
        if namespace < 0:
            return
        subprocess.run(("ip", "link", "delete", self.device), capture_output=True, timeout=20)
        os.close(namespace)


def _ip(*lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run(("ip", "-batch", "-"), input=text.encode(), check=True, timeout=20)
