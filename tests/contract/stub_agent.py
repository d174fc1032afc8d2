"""A stand-in for the agent: the same verbs over plain files, started by whoever tests shipping.

It runs nothing. ``start`` writes an event for the plan and one that tells which secrets came, and
leaves a detached process that holds the lock until ``stop`` or ``close``.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

from seatrial_agent import layout, serve

HOLD = """
import fcntl, sys, time, pathlib
folder = pathlib.Path(sys.argv[1])
lock = open(folder / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
(folder / "held").touch()
while folder.exists() and not (folder / "stop").exists():
    time.sleep(0.02)
"""


def main(verb, *words):
    if verb == "serve":
        return serve.serve(lambda words: main(*words))
    options = dict(zip(words[::2], (*words[1::2], ""), strict=False))
    if verb == "probe":
        candidates = words[1::2]
        print(json.dumps({"v": 1, "hostname": "stub", "interpreters": list(candidates)}))
        return 0
    if verb == "ready":
        print(json.dumps({"v": 1, "checks": [{"check": "apt", "state": "ok", "detail": ""}]}))
        return 0
    if verb == "holds":
        return 0 if os.path.isdir(options["--folder"]) else 3
    folder = pathlib.Path(options["--attempt"])
    if verb == "start":
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        sys.stderr.write("no such attempt\n")
        return 0 if verb == "close" else 3
    return VERBS[verb](folder, options, "--kill" in words)


def start(folder, options, kill):
    handed = json.load(sys.stdin)
    plan, secrets = handed["plan"], handed["secrets"]
    if (folder / "events.jsonl").exists():
        return 0
    (folder / "plan.json").write_text(json.dumps(plan))
    lines = [json.dumps({"plan": plan}), json.dumps({"secrets": sorted(secrets)})]
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "log").write_bytes(bytes(range(256)) * 4)
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "job.txt").write_bytes(b"said\r\n\0")
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], start_new_session=True, **quiet)
    while not (folder / "held").exists():
        time.sleep(0.01)
    return 0


def pull(folder, options, kill):
    limit = int(options["--limit"])
    events, log = ((folder / name).read_bytes() for name in ("events.jsonl", "log"))
    sent = events[int(options["--events"]) :][:limit], log[int(options["--log"]) :][:limit]
    header = {"v": 1, "alive": alive(folder), "now": time.time()}
    header.update(events_bytes=len(sent[0]), log_bytes=len(sent[1]))
    header.update(events_size=len(events), log_size=len(log))
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + b"".join(sent))
    if "--wake" in options and header["alive"]:
        events_end, log_end = (
            int(options["--events"]) + len(sent[0]),
            int(options["--log"]) + len(sent[1]),
        )
        attempt = layout.AttemptFolder(folder)
        serve.wake_later(serve.PulledPosition(attempt, events_end, log_end, time.monotonic()))
    return 0


def stop(folder, options, kill):
    (folder / "stop").write_text(options["--reason"])
    while kill and alive(folder):
        time.sleep(0.02)
    return 0


def close(folder, options, kill):
    stop(folder, {"--reason": "closed"}, True)
    shutil.rmtree(folder)
    return 0


def bundle(folder, options, kill):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(folder / "artifacts", arcname="artifacts")
    sys.stdout.buffer.write(buffer.getvalue())
    return 0


def alive(folder):
    with open(folder / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


VERBS = {"start": start, "pull": pull, "stop": stop, "close": close, "bundle": bundle}
if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(*sys.argv[1:]))
