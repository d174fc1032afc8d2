"""Generates ``docs/reference/cli.md`` from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from orchestrator.cli.app import NAME, whole

_HEAD = """\
# The command line

Made from the commands: `python -m docs.generate_reference`.

`seatrial` is always a client of a controller's REST API. With `SEATRIAL_URL` (and `SEATRIAL_TOKEN`)
it talks to that one. Without, it uses the controller that holds `SEATRIAL_HOME` (default `./var`);
where none does, it starts one in the background, which ends when nothing has been live for 30 s.
Where the database is a file of the home, commands that only read (`runs`, `show`, `logs`, `report`,
`gate explain` ...) start none: they answer from the files of the home.

Standard output is data, standard error is progress. `--json` prints data for programs, by
[one schema](cli-json.md). Without a terminal, or with `CI` set, progress is plain lines;
`NO_COLOR` takes the colours away.

A command that reads runs takes the latest where none is named. Without a terminal, lines are as
wide as their text, or as `COLUMNS` where it is set.

## Exit codes

| code | of `run`, `rerun`, `watch` | of `gate check`, `gate dry-run` | of every other command |
|---|---|---|---|
| 0 | the run passed | PASS, also with exceptions | the command worked |
| 1 | failed, or timed out | FAIL | what it checks is not so (below) |
| 2 | usage, an invalid file, no controller | the same | the same |
| 4 | not signed in, or not allowed | the same | the same |
| 5 | errored, cancelled, not available, only skips | INCONCLUSIVE | controller or cloud failed |
| 7 | `--timeout` is up; the run goes on | a run was not finished in time | |
| 10 | | PASS_WITH_EXCEPTIONS, with `--strict` | |
| 130 | detached; the run goes on | interrupted | interrupted |

*Only skips*: the run passed, and its jobs have nothing but skipped tests.

1 of other commands: `lint` found something, `gate verify` proves nothing, `gate explain --replay`
differs, `gate bisect` found no commit, `channel test` was not delivered, `db check` needs an
upgrade, an approval of `gate approve` counts for nothing, a check of `doctor CLOUD` or of a host
(`plan --check`) failed, a cell of a `plan` cannot be launched. `show` and `failures` end with 0
whatever they show. `ssh` ends with the exit code of `ssh` itself.

## Completion

`seatrial --install-completion` completes commands, options and the ids of runs.

## Options of every command
"""


class _Param(Protocol):
    name: str | None
    opts: list[str]
    secondary_opts: list[str]
    metavar: str | None
    required: bool
    param_type_name: str
    is_flag: bool
    help: str | None
    hidden: bool


class _Command(Protocol):
    help: str | None
    hidden: bool
    params: list[_Param]


def reference() -> str:
    """Return the whole page."""
    root = cast(_Command, whole())
    lines = [_HEAD, *_globals(root)]
    for name, command in _walk(NAME, root):
        lines += ["", *_section(name, command)]
    return "\n".join(lines) + "\n"


def _globals(root: _Command) -> list[str]:
    own = [one for one in root.params if "completion" not in (one.name or "")]
    return ["They are written before it.", "", *map(_param, own)]


def _walk(prefix: str, command: object) -> Iterator[tuple[str, _Command]]:
    for name, inner in getattr(command, "commands", {}).items():
        if inner.hidden:
            continue
        full = f"{prefix} {name}"
        if hasattr(inner, "commands"):
            yield from _walk(full, inner)
        else:
            yield full, inner


def _section(name: str, command: _Command) -> list[str]:
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = " ".join(_argument(one) for one in shown if one.param_type_name == "argument")
    usage = " ".join(part for part in (name, arguments) if part)
    lines = [f"## `{usage}`", "", (command.help or "").strip()]
    listed = [_param(one) for one in shown]
    return [*lines, "", *listed] if listed else lines


def _argument(param: _Param) -> str:
    word = (param.metavar or param.name or "").upper().strip("[]")
    return word if param.required else f"[{word}]"


def _param(param: _Param) -> str:
    if param.param_type_name == "argument":
        return f"- `{_argument(param)}`: {param.help or ''}".rstrip(": ")
    names = ", ".join(f"`{one}`" for one in (*param.opts, *param.secondary_opts))
    value = "" if param.is_flag else f" {_value(param)}"
    return f"- {names}{value}: {param.help or ''}".rstrip(": ")


def _value(param: _Param) -> str:
    return f"`{param.metavar or (param.name or '').upper()}`"
