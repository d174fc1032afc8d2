"""The agent's command line: ``python3 -E -s -m seatrial_agent <verb> ...``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import List, Optional

from .layout import AgentRefusedError, AttemptFolder

# Verbs run on a machine that is being measured, so that each imports only the modules that it
# needs.
# ruff: noqa: PLC0415

OK = 0
USAGE = 2
NO_SUCH_ATTEMPT = 3
REFUSED = 4


def main(argv: Optional[List[str]] = None) -> int:
    """Run one verb.

    Returns:
        0 done, 2 usage, 3 no such attempt or folder, 4 refused (stderr has the correction).
    """
    options = _parser().parse_args(argv)
    try:
        return _VERBS[options.verb](options)
    except (AgentRefusedError, OSError) as error:
        print(f"{options.verb}: {error}", file=sys.stderr)
        return REFUSED


@lru_cache(maxsize=None)
def _parser() -> argparse.ArgumentParser:
    """Create the parser; ``serve`` uses one parser for the arguments of many verbs."""
    parser = argparse.ArgumentParser(prog="seatrial_agent", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("probe").add_argument("--candidate", action="append", default=[])
    verbs.add_parser("ready")
    verbs.add_parser("serve")
    verbs.add_parser("holds").add_argument("--folder", type=_folder, required=True)
    for name in ("start", "pull", "stop", "close", "bundle"):
        verbs.add_parser(name).add_argument("--attempt", type=_folder, required=True)
    for name in ("events", "log", "limit"):
        verbs.choices["pull"].add_argument(f"--{name}", type=_count, required=True)
    verbs.choices["pull"].add_argument("--wake", action="store_true")
    verbs.choices["stop"].add_argument("--reason", required=True)
    verbs.choices["stop"].add_argument("--kill", action="store_true")
    return parser


def _folder(text: str) -> Path:
    return Path(os.path.realpath(text))


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _attempt(options: argparse.Namespace) -> Optional[AttemptFolder]:
    folder: Path = options.attempt
    if folder.is_dir():
        return AttemptFolder(folder)
    print(f"{options.verb}: there is no attempt at {folder}", file=sys.stderr)
    return None


def _probe(options: argparse.Namespace) -> int:
    import json

    from . import probe

    print(json.dumps(probe.everything(options.candidate)))
    return OK


def _ready(_: argparse.Namespace) -> int:
    import json

    from . import machine_ready

    print(json.dumps({"v": 1, "checks": machine_ready.everything()}))
    return OK


def _serve(_: argparse.Namespace) -> int:
    from . import serve

    return serve.serve(main)


def _holds(options: argparse.Namespace) -> int:
    if not options.folder.is_dir():
        return NO_SUCH_ATTEMPT
    # When it was last used: what is not used for long is removed, unless another account has it.
    with contextlib.suppress(OSError):
        os.utime(options.folder)
    return OK


def _start(options: argparse.Namespace) -> int:
    from . import agent_process

    plan, secrets = agent_process.read_handed(sys.stdin.buffer)
    if plan is not None:
        agent_process.keep_plan(AttemptFolder(options.attempt), plan)
    attempt = _attempt(options)
    if attempt is None:
        return NO_SUCH_ATTEMPT
    agent_process.start(attempt, secrets)
    return OK


def _pull(options: argparse.Namespace) -> int:
    attempt = _attempt(options)
    if attempt is None:
        return NO_SUCH_ATTEMPT
    from . import serve

    position = serve.pull(
        attempt,
        sys.stdout.buffer,
        events_from=options.events,
        log_from=options.log,
        limit_bytes=options.limit,
    )
    if options.wake and position is not None:
        serve.wake_later(position)
    return OK


def _stop(options: argparse.Namespace) -> int:
    attempt = _attempt(options)
    if attempt is None:
        return NO_SUCH_ATTEMPT
    from . import agent_process

    agent_process.ask(attempt, options.reason)
    if options.kill:
        agent_process.kill(attempt)
    return OK


def _close(options: argparse.Namespace) -> int:
    from . import agent_process

    agent_process.close(AttemptFolder(options.attempt))
    return OK


def _bundle(options: argparse.Namespace) -> int:
    attempt = _attempt(options)
    if attempt is None:
        return NO_SUCH_ATTEMPT
    from . import pack_artifacts

    pack_artifacts.bundle(attempt.artifacts, sys.stdout.buffer)
    return OK


_VERBS = {
    "probe": _probe,
    "ready": _ready,
    "serve": _serve,
    "holds": _holds,
    "start": _start,
    "pull": _pull,
    "stop": _stop,
    "close": _close,
    "bundle": _bundle,
}

if __name__ == "__main__":
    sys.exit(main())
