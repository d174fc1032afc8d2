"""What pytest would have written of thousands of tests: text, JUnit XML, reportlog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

KINDS = 20
WIDTH = 80
PRINTED = (
    "epoch {line} of {number}: loss 0.0{number} and 17.3 ms/iteration on one device, as before"
)


@dataclass(frozen=True, slots=True)
class Many:
    """So many tests, of which every so manieth failed in one of some ways."""

    tests: int = 10_000
    fails_each: int = 20
    modules: int = 10

    def nodeid(self, number: int) -> str:
        module, group = number % self.modules, number // self.modules % 10
        return f"tests/test_part_{module}.py::TestThing{group}::test_case[{number}-float16]"

    def is_bad(self, number: int) -> bool:
        return number % self.fails_each == 0

    def word(self, number: int) -> str:
        """As a line of pytest has it."""
        if self.is_bad(number):
            return "FAILED"
        return {7: "SKIPPED (needs a device)", 11: "XFAIL (known)"}.get(number % 50, "PASSED")

    @property
    def failed(self) -> int:
        return sum(map(self.is_bad, range(self.tests)))

    def counts(self) -> dict[str, int]:
        """By the words of pytest's sum."""
        words = {"PASSED": "passed", "FAILED": "failed", "SKIPPED": "skipped", "XFAIL": "xfailed"}
        found = dict.fromkeys(("failed", "passed", "skipped", "xfailed"), 0)
        for number in range(self.tests):
            found[words[self.word(number).partition(" ")[0]]] += 1
        return {word: count for word, count in found.items() if count}


def message(number: int, many: Many) -> str:
    """One line; numbers and addresses in it differ, kinds stay."""
    kind = chr(97 + number // many.fails_each % KINDS)
    return f"ValueError: cannot build <library.Engine object at 0x7f{number:06x}> of kind {kind}"


def traceback(number: int, many: Many) -> str:
    """As ``--tb=long`` writes it."""
    kind, line = number // many.fails_each % KINDS, number % 90 + 1
    return f"""\
self = <tests.TestThing object at 0x7f{number:06x}>, number = {number}

    def test_case(self, number, dtype):
        config = Config(dtype=dtype, kind={kind})
>       engine = Engine(config)

{many.nodeid(number).partition("::")[0]}:{line}:{" "}
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

config = Config(dtype='float16', kind={kind})

    def build(self, config):
        for part in self.parts:
            if not part.fits(config):
>               raise ValueError(f"cannot build {{self}} of kind {{config.kind}}")
E               {message(number, many)}

library/engine_{kind}.py:{line + 7}: ValueError"""


def write_text(path: Path, many: Many, *, printed: int = 0, of: str = PRINTED) -> int:
    """What ``pytest -v`` prints, or ``-v -s`` where tests print lines; returns its lines."""
    lines = 0
    with path.open("w") as file:
        for line in _text(many, printed, of):
            file.write(line + "\n")
            lines += line.count("\n") + 1
    return lines


def _text(many: Many, printed: int, of: str) -> Iterator[str]:
    yield " test session starts ".center(WIDTH, "=")
    yield "platform linux -- Python 3.11.2, pytest-9.0.2, pluggy-1.6.0"
    yield f"collected {many.tests} items\n"
    for number in range(many.tests):
        yield from _told(number, many, printed, of)
    yield ""
    bad = [number for number in range(many.tests) if many.is_bad(number)]
    if bad:
        yield " FAILURES ".center(WIDTH, "=")
    for number in bad:
        domain = many.nodeid(number).partition("::")[2].replace("::", ".")
        yield f" {domain} ".center(WIDTH, "_") + f"\n\n{traceback(number, many)}"
    if bad:
        yield " short test summary info ".center(WIDTH, "=")
    for number in bad:
        yield f"FAILED {many.nodeid(number)} - {message(number, many)}"
    said = ", ".join(f"{count} {word}" for word, count in many.counts().items())
    yield f" {said} in 61.00s (0:01:01) ".center(WIDTH, "=")


def _told(number: int, many: Many, printed: int, of: str) -> Iterator[str]:
    nodeid, word = many.nodeid(number), many.word(number)
    if not printed:
        yield f"{nodeid} {word} [{number * 100 // many.tests:3d}%]"
        return
    yield f"{nodeid} {of.format(line=0, number=number)}"
    for line in range(1, printed):
        yield of.format(line=line, number=number)
    yield word


def write_junit(path: Path, many: Many) -> None:
    """What ``--junit-xml`` writes."""
    counts = many.counts()
    aside = counts.get("skipped", 0) + counts.get("xfailed", 0)
    with path.open("w") as file:
        file.write('<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">')
        file.write(f'<testsuite name="pytest" errors="0" failures="{many.failed}"')
        file.write(f' skipped="{aside}" tests="{many.tests}" time="61.000"')
        file.write(' timestamp="2026-01-19T12:00:00.000000+00:00" hostname="here">')
        file.writelines(_case(number, many) for number in range(many.tests))
        file.write("</testsuite></testsuites>")


def _case(number: int, many: Many) -> str:
    path, group, name = many.nodeid(number).split("::", 2)
    classname = f"{path.removesuffix('.py').replace('/', '.')}.{group}"
    said, word = "", many.word(number)
    if word == "FAILED":
        text = escape(traceback(number, many))
        said = f"<failure message={quoteattr(message(number, many))}>{text}</failure>"
    elif word != "PASSED":
        kind = "pytest.xfail" if word.startswith("XFAIL") else "pytest.skip"
        said = f'<skipped type="{kind}" message="needs a device">{path}:3: no</skipped>'
    return (
        f'<testcase classname="{classname}" name={quoteattr(name)} time="0.012">{said}</testcase>'
    )


def write_reportlog(path: Path, many: Many) -> None:
    """What ``--report-log`` writes."""
    with path.open("w") as file:
        file.write('{"pytest_version": "9.0.2", "$report_type": "SessionStart"}\n')
        for number in range(many.tests):
            file.writelines(json.dumps(report) + "\n" for report in _reports(number, many))
        code = 1 if many.failed else 0
        file.write(f'{{"exitstatus": {code}, "$report_type": "SessionFinish"}}\n')


def _reports(number: int, many: Many) -> Iterator[dict[str, object]]:
    nodeid, word = many.nodeid(number), many.word(number)
    path, _, domain = nodeid.partition("::")
    for when in ("setup", "call", "teardown"):
        report: dict[str, object] = {"nodeid": nodeid, "location": [path, number % 90, domain]}
        report |= {"keywords": {}, "outcome": "passed", "longrepr": None, "when": when}
        report |= {"user_properties": [], "sections": [], "duration": 0.004, "start": 1.0}
        report |= {"stop": 1.004, "$report_type": "TestReport"}
        if word == "FAILED" and when == "call":
            crash = {"path": path, "lineno": number % 90, "message": message(number, many)}
            entry = {"type": "ReprEntryNative", "data": {"lines": [traceback(number, many)]}}
            trace = {"reprentries": [entry], "extraline": None, "style": "native"}
            report |= {"outcome": "failed"}
            report |= {"longrepr": {"reprcrash": crash, "reprtraceback": trace, "sections": []}}
        elif word.startswith("SKIP") and when == "setup":
            report |= {"outcome": "skipped", "longrepr": [path, 3, "Skipped: needs a device"]}
        elif word.startswith("XFAIL") and when == "call":
            report |= {"outcome": "skipped", "wasxfail": "reason: known", "longrepr": None}
        if not (word.startswith("SKIP") and when == "call"):
            yield report
