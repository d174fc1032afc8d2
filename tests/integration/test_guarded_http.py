"""One request to somebody else's server: what is refused, and what is cut off."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.adapters.guarded_http import GuardedHttp, GuardedHttpError, Request
from tests.integration.webhook_receiver import Receiver


def test_a_dripping_answer_is_cut_off_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wire = GuardedHttp(deadline_s=0.3)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        script = f"""
            import socket, time
            s = socket.socket(fileno={server.fileno()})
            c, _ = s.accept()
            for b in b"HTTP/1.1 200 OK\\r\\nX-Long: " + b"x" * 10000:
                c.sendall(bytes([b])); time.sleep(0.05)
        """
        drip = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            pass_fds=[server.fileno()],
            stderr=subprocess.DEVNULL,
        )
        try:
            begun = datetime.now(UTC)
            with pytest.raises(GuardedHttpError, match=r"no answer within 0\.3 s"):
                wire.send(Request("POST", url, {}, b"{}"), allow_private=True)
            assert datetime.now(UTC) - begun < timedelta(seconds=100)
        finally:
            drip.kill()
            drip.wait()


@pytest.mark.parametrize(
    ("addresses", "allow_private", "said"),
    [
        (["127.0.0.1"], False, "this computer's own address"),
        (["10.1.2.3"], False, "a private address"),
        (["93.184.216.34", "10.1.2.3"], False, "a private address"),
        (["169.254.169.254"], True, "is a link-local or cloud metadata address"),
        ([], True, "has no address"),
    ],
)
def test_names_that_lead_inside_are_refused(
    hook: Receiver, addresses: list[str], allow_private: bool, said: str
) -> None:
    wire = GuardedHttp(resolve=lambda _host, _port: addresses)
    url = f"https://evil.example:{hook.port}/"
    with pytest.raises(GuardedHttpError, match=said):
        wire.send(Request("POST", url, {}), allow_private=allow_private)
    assert hook.received == []


def test_a_name_is_resolved_once_and_that_address_is_taken(hook: Receiver) -> None:
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    wire = GuardedHttp(resolve=resolve)
    answer = wire.send(
        Request("POST", f"http://hooks.example:{hook.port}/x", {}), allow_private=True
    )
    assert (answer.status, asked) == (200, ["hooks.example"])
    assert hook.received[0].headers["host"] == f"hooks.example:{hook.port}"
