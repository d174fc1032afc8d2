"""Reports how many modules of the subject a process of a job loaded, and those from elsewhere.

The environment's ``seatrial_overlay.pth`` runs this file at the start of each process of its
Python. In pytest's own processes the recorder does it. Below a suite, only modules from the payload
count, or installed ones where the payload is the subject: a test may start a program with a subject
that it made itself.

In the processes of a command it also reports, as failed checks, what its exit code hides.
"""
# ruff: noqa: INP001, PTH120, PTH123 - no package; runs before each job's own code

from __future__ import annotations

import atexit
import os
import sys
from _sitebuiltins import Quitter
from typing import Any, Callable, Dict, Iterator, List, Optional

_PROBLEMS = 20
"""Maximum number of modules that are named."""


def report(given: Dict[str, str]) -> None:
    """Append one line of JSON to $SEATRIAL_MODULES if modules of the subject were loaded.

    Args:
        given: The agent's variables, saved before the job's own code could change them.
    """
    import json  # noqa: PLC0415 - not before the job's own modules

    if "seatrial_pytest" in sys.modules or not _has_subject(given):
        return
    os.environ.update(given)
    home = given.get("SEATRIAL_SUBJECT_HOME")
    sys.path[:0] = [os.path.dirname(__file__), *([home] if home else [])]
    from seatrial_origins import (  # noqa: PLC0415
        InstalledFiles,
        RequiredDistributions,
        below_payload,
    )

    subject = InstalledFiles(given["SEATRIAL_SUBJECT"]) if home else None
    found = RequiredDistributions((), subject).problems()
    is_below_suite = "SEATRIAL_RECORDS" in given
    if is_below_suite:
        sites = ("site-packages", "dist-packages")
        found = [
            (reason, one)
            for reason, one in found
            if (one.file and below_payload(one.file) != one.file)
            or (subject is None and any(f"/{site}/" in one.file for site in sites))
        ]
    if found or not is_below_suite:
        told = [{"reason": reason, **problem._asdict()} for reason, problem in found[:_PROBLEMS]]
        number = len(subject.of(sys.modules)) if subject else 0
        line = json.dumps({"problems": told, "subject_modules": number})
        file = os.open(given["SEATRIAL_MODULES"], os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{line}\n".encode("ascii"))
        os.close(file)


def _has_subject(given: Dict[str, str]) -> bool:
    tops = {*given.get("SEATRIAL_SUBJECT_TOPS", "").split()}
    loader = getattr(sys.modules.get("__main__"), "__loader__", None)
    program = str(getattr(loader, "path", "")).replace(".py", "").replace("/", ".")
    # The payload's copy can be the program, or be in another package: src.mylib.
    parts = (part for name in (*sys.modules, program) for part in name.split("."))
    return "*" in tops or bool(tops.intersection(parts))


_EXITED_WELL = (0, 5)
"""Exit codes of pytest that a program may ignore: all tests passed, and no tests collected."""


def _fail(check: str, reason: str, *, is_of_exit: bool = False) -> None:
    """Append a failed check to $SEATRIAL_EVENTS; if that is impossible, write to stderr.

    With `is_of_exit` the line has this process's id: the agent ignores the check if it started the
    process itself, because the exit code already shows the failure.
    """
    import json  # noqa: PLC0415 - few processes have one

    line = {"check": check, "outcome": "failed", "reason": reason}
    line.update({"_seatrial_process": str(os.getpid())} if is_of_exit else {})
    try:
        file = os.open(_GIVEN["SEATRIAL_EVENTS"], os.O_WRONLY | os.O_APPEND)
        os.write(file, f"{json.dumps(line)}\n".encode("ascii"))
        os.close(file)
    except OSError as error:  # as after a change of the user or of the root folder
        if sys.stderr is not None:
            sys.stderr.write(f"seatrial: not recorded ({error}): {reason}\n")


def _checked(leave: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap ``sys.exit`` or ``os._exit`` to report codes whose last 8 bits are 0."""

    def checked(status: object = None) -> None:
        _check_code(status, name)
        leave(status)

    return checked


def _checked_builtin(leave: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the call of ``exit`` and ``quit``, which `site` creates later, to report such codes."""

    def checked(self: Any, code: object = None) -> None:  # noqa: ANN401
        _check_code(code, self.name)
        leave(self, code)

    return checked


def _check_code(status: object, name: str) -> None:
    if isinstance(status, int) and status and not status & 0xFF:
        _fail("exit-code", f"{name}({status}) is exit code 0: the system keeps its last 8 bits")


def _payload_sources() -> Iterator[str]:
    """Yield the source text of the code after ``-c``, and of each loaded module of the payload."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").split("\0")
    if sys.argv[:1] == ["-c"] and "-c" in words:
        yield words[words.index("-c") + 1]
    root = os.path.realpath(_GIVEN["SEATRIAL_PAYLOAD"]) + os.sep
    for module in list(sys.modules.values()):
        loader = getattr(module, "__loader__", None)  # __main__ has no __file__ any more
        path = os.path.realpath(str(getattr(module, "__file__", getattr(loader, "path", ""))))
        if path.startswith(root) and path.endswith(".py") and os.path.isfile(path):  # noqa: PTH113
            with open(path, "rb") as file:
                yield file.read().decode("utf-8", "replace")


def _report_assertions() -> None:
    """Report a payload's assertions that an optimized Python left out."""
    import ast  # noqa: PLC0415

    for text in _payload_sources():
        try:
            nodes = ast.walk(ast.parse(text))
        except (SyntaxError, ValueError):  # the file is another by now
            continue
        if any(isinstance(node, ast.Assert) for node in nodes):
            fix = "run the command without -O and PYTHONOPTIMIZE"
            _fail("assertions", f"Python runs optimized, so assertions are left out. Fix: {fix}")
            return


def _report_failed_assertion() -> None:
    """Report a failed assertion that ends this process, if another's exit code may hide it.

    That of the command's own process is its exit code. Other exceptions of a process may be what
    its starter expects.
    """
    error = getattr(sys, "last_value", None)  # Python's own, also below a replaced excepthook
    if (
        isinstance(error, AssertionError)
        and _ends_by(getattr(sys, "last_traceback", None))
        and "_pytest" not in sys.modules
        and _has_subject(_GIVEN)
    ):
        said = f"AssertionError: {error}"[:500] if str(error) else "an AssertionError"
        text = f"a process that the command started, with the subject, ended by {said}"
        _fail("assertion", text, is_of_exit=True)


def _ends_by(traceback: Any) -> bool:  # noqa: ANN401
    """Return whether an exception ends the program, rather than one line of a console in it.

    A console stores the exceptions that it handles in the same places as Python at its end.
    """
    frame = getattr(traceback, "tb_frame", None)
    code = getattr(frame, "f_code", None)
    if code is None or sys.flags.interactive:
        return False
    is_program = code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
    is_text = code.co_filename.startswith("<") and code.co_filename not in _PROGRAM_TEXTS
    return code.co_name == "_run_module_as_main" or (is_program and not is_text)


_PROGRAM_TEXTS = ("<string>", "<stdin>")
"""File names of program texts: after ``-c``, and from standard input."""


_WATCHED = ("asyncio.base_events", "concurrent.futures._base", "multiprocessing.pool")
"""Modules whose first import loads ``seatrial_dropped``."""


class _DroppedFinder:
    """Import finder that loads ``seatrial_dropped`` before the first module that it watches."""

    @classmethod
    def find_spec(cls, name: str, path: Any, _: object = None) -> Optional[Any]:  # noqa: ANN401
        """Return the spec of a module that is watched, else None."""
        if name not in _WATCHED:
            return None
        sys.meta_path.remove(cls)
        return _watch_dropped().find_spec(name, path)


def _watch_dropped() -> Any:  # noqa: ANN401
    """Report failed assertions whose future or task the program never reads; return the finder."""
    from importlib.machinery import SourceFileLoader  # noqa: PLC0415

    name = "seatrial_dropped"
    dropped: Any = type(sys)(name)
    SourceFileLoader(name, f"{os.path.dirname(__file__)}/{name}.py").exec_module(dropped)
    dropped.watch(_failed_line, lambda line: _fail_dropped([line]))
    atexit.register(lambda: _fail_dropped(dropped.kept()))
    return sys.meta_path[0]


def _failed_line(error: AssertionError) -> str:
    """Return the file and line in which an assertion failed, in a process of a pool, too."""
    import re  # noqa: PLC0415 - few processes have one
    import traceback  # noqa: PLC0415

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    found = re.findall(r'^ *File "(.+)", line (\d+)', text, re.MULTILINE)
    root = os.path.realpath(_GIVEN["SEATRIAL_PAYLOAD"]) + os.sep
    return ":".join(found[-1]).replace(root, "") if found else "an unknown line"


def _fail_dropped(lines: List[str]) -> None:
    """Report the lines of failed assertions, except in processes of pytest."""
    if lines and "_pytest" not in sys.modules and _has_subject(_GIVEN):
        more = f" and {len(lines) - 1} more" if lines[1:] else ""
        said = f"failed in a future, task or callback whose result was never read: {lines[0]}{more}"
        _fail("assertion", f"an assertion {said}. Fix: read the result of each")


class _PytestFinder:
    """Import finder that wraps pytest's ``main`` to report failures that its caller ignores."""

    @staticmethod
    def find_spec(name: str, path: Any, _: object = None) -> Optional[Any]:  # noqa: ANN401
        """Return the spec of the module with ``main``, else None."""
        if name != "_pytest.config":
            return None
        from importlib.machinery import PathFinder  # noqa: PLC0415

        spec = PathFinder.find_spec(name, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: Any) -> None:  # noqa: ANN401
                run(module)
                inner = "_main" if hasattr(module, "_main") else "main"  # pytest 9.1, and before
                setattr(module, inner, _reporting(getattr(module, inner), module.Config))
                module.main = _heeded(module.main)

            loader.exec_module = exec_module
        return spec


def _heeded(main: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap pytest's ``main`` to report a failure whose exit code the caller ignores."""

    def heeded(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        code = main(*arguments, **named)
        if code not in _EXITED_WELL and _is_dropped(sys._getframe(1)):  # noqa: SLF001
            fix = "sys.exit(pytest.main(...))"
            _fail("pytest", f"pytest.main ended with {int(code)}, which is ignored. Fix: {fix}")
        return code

    return heeded


def _reporting(main: Callable[..., Any], config_class: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Return pytest's innermost ``main`` that reports failed tests of the subject.

    It does so in a program that the command started, whose exit code and output may be dropped; in
    any with the subject it reports options under which tests leave out what they would check.
    """
    configs: List[Any] = []
    configure = config_class._do_configure  # noqa: SLF001

    def configured(config: Any) -> Any:  # noqa: ANN401
        configs.append(config)
        return configure(config)

    def reporting(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        config_class._do_configure = configured  # noqa: SLF001
        try:
            code = main(*arguments, **named)
        finally:
            config_class._do_configure = configure  # noqa: SLF001
        if _has_subject(_GIVEN):
            started = "a pytest that the command started, with the subject,"
            if code not in _EXITED_WELL:
                _fail("pytest", f"{started} ended with {int(code)}", is_of_exit=True)
            for what in _excluding_options(configs[0]) if configs else ():
                _fail("pytest", f"{started} ran with {what}")
        return code

    return reporting


def _excluding_options(config: Any) -> List[str]:  # noqa: ANN401
    """Return a sentence for each pytest option that makes tests skip what they would check."""
    place = os.path.dirname(__file__)
    sys.path.insert(0, place)
    try:
        from seatrial_proof import excluding_options  # noqa: PLC0415

        return [*excluding_options(config)]
    finally:
        sys.path.remove(place)


def _is_dropped(frame: Any) -> bool:  # noqa: ANN401
    """Return whether a frame ignores the result of the call that it is making."""
    import dis  # noqa: PLC0415

    later = (one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    return next((one.opname for one in later), "") == "POP_TOP"


def _variables() -> Dict[str, str]:
    """Return the agent's variables: this process's, or else its nearest ancestor's.

    A process may be started with an empty environment. The result is empty if the ancestor has
    ended, or if the system does not show the environment of other processes, as only Linux does.
    """
    rows = [f"{name}={value}" for name, value in os.environ.items()]
    pid = os.getppid()
    try:
        while pid > 1 and not any(row.startswith("SEATRIAL_ATTEMPT=") for row in rows):
            with open(f"/proc/{pid}/environ", "rb") as variables:
                rows = os.fsdecode(variables.read()).split("\0")
            with open(f"/proc/{pid}/stat", "rb") as line:
                pid = int(line.read().rpartition(b")")[2].split()[1])
    except OSError:
        return {}
    return dict(row.split("=", 1) for row in rows if row.startswith("SEATRIAL_") and "=" in row)


def _keep_events(path: str) -> Callable[..., None]:
    """Return the hook that keeps the lines of $SEATRIAL_EVENTS, which the agent may not have read.

    It raises PermissionError where a file with lines is opened with mode ``w``. Nothing global is
    used, because the hook is called while Python ends, too.
    """
    truncating, size, is_file = os.O_TRUNC, os.path.getsize, os.path.isfile
    said = '$SEATRIAL_EVENTS has lines, which mode "w" deletes. Fix: mode "a"'

    def hook(event: str, arguments: Any) -> None:  # noqa: ANN401
        is_truncating = event == "open" and (arguments[2] or 0) & truncating
        if is_truncating and arguments[0] == path and is_file(path) and size(path):
            raise PermissionError(said)

    return hook


_GIVEN = _variables()
if vars(sys).setdefault("_seatrial_report", report) is report:  # Python reads a .pth twice
    if "SEATRIAL_SUBJECT_TOPS" in _GIVEN:
        atexit.register(report, _GIVEN)
    if "SEATRIAL_EVENTS" in _GIVEN:
        sys.addaudithook(_keep_events(_GIVEN["SEATRIAL_EVENTS"]))
    if "SEATRIAL_EVENTS" in _GIVEN and "SEATRIAL_RECORDS" not in _GIVEN:
        sys.exit = _checked(sys.exit, "sys.exit")
        os._exit = _checked(os._exit, "os._exit")
        Quitter.__call__ = _checked_builtin(Quitter.__call__)  # type: ignore[method-assign]
        sys.meta_path[:0] = [_PytestFinder, _DroppedFinder]
        if any(name in sys.modules for name in _WATCHED):
            sys.meta_path.remove(_DroppedFinder)
            _watch_dropped()
        atexit.register(_report_failed_assertion)
        if sys.flags.optimize:
            atexit.register(_report_assertions)
