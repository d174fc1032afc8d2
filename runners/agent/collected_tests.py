"""The tests that one process of a suite collected, and those that were left out."""

from __future__ import annotations

import hashlib
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .evidence_text import JsonValue

Fields = Mapping[str, object]

_SELECTIONS = ("-k", "-m", "--deselect")
"""Options of pytest that exclude tests."""
_NAMED = 200
_SHOWN = 5


class TestSetRecorder:
    """The test set of a process, from the plugin's records; emitted once it has ended."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start with an empty test set.

        Args:
            arguments: The job's arguments for pytest: tests that they exclude were excluded on
                purpose.
        """
        self._arguments = tuple(arguments)
        self._recorded: Dict[str, JsonValue] = {}
        self._loaded: List[Optional[int]] = []

    def take(self, line: Fields) -> None:
        """Read the plugin's record of collected tests.

        Raises:
            ValueError: the record has a wrong format.
        """
        self._recorded["deselected"] = [self._cause(raw) for raw in _list(line, "deselected")]
        for key in ("modules", "ignored"):
            self._recorded[key] = [_pair(raw) for raw in _list(line, key)]
        self._recorded["hidden"] = [_text(raw) for raw in _list(line, "hidden")]

    def take_hooks(self, line: Fields) -> None:
        """Add other plugins' hooks that can change outcomes.

        Raises:
            ValueError: the record has a wrong format.
        """
        hooks = [_pair(raw) for raw in _list(line, "hooks")]
        known = self._recorded.get("hooks")
        before = [row for row in known if row not in hooks] if isinstance(known, list) else []
        self._recorded["hooks"] = [*before, *hooks][:_NAMED]

    def take_origins(self, line: Fields) -> None:
        """Add the subject's import names, and the number of its modules that a process loaded.

        Raises:
            ValueError: the names are no list of texts, or the number is neither an integer nor None
                for unknown.
        """
        if "subject_names" in line:  # missing if the process was refused before it looked
            self._recorded["subject_names"] = [_text(name) for name in _list(line, "subject_names")]
        number = line.get("subject_modules")
        if number is not None and not isinstance(number, int):
            raise ValueError(f"subject_modules must be a whole number, not {number!r:.80}")
        self._loaded.append(number)

    def document(self, manifest: Optional[Sequence[str]]) -> Dict[str, JsonValue]:
        """Return the complete test set, with a digest of the tests to run."""
        text = "\n".join(sorted(manifest or ()))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        data: Dict[str, JsonValue] = {"record": "test_set", "nodeid": "", "digest": digest}
        data.update(collected=len(manifest or ()), hooks=[], subject_modules=self._most_loaded())
        return {**data, **self._recorded}

    def _most_loaded(self) -> Optional[int]:
        known = [number for number in self._loaded if number is not None]
        is_unsure = len(known) < len(self._loaded) and not any(known)
        return None if is_unsure else max(known, default=None)

    def notices(self) -> Iterator[Tuple[str, str]]:
        """Yield the level and text of a log entry for each group of tests that was left out."""
        for cause in _rows(self._recorded.get("deselected")):
            tests = [str(test) for test in _rows_of(cause, "tests")]
            level = "info" if cause["asked"] else "warning"
            yield level, f"{cause['count']} tests were deselected by {cause['by']}: {_some(tests)}"
        for key, word in (("modules", "skipped at collection"), ("ignored", "ignored by")):
            for place, why in _pairs(self._recorded.get(key)):
                gap = ": " if key == "modules" else " "
                yield "info", f"{place or 'everything'} was {word}{gap}{why}"

    @property
    def modules(self) -> "List[Tuple[str, str]]":
        """The modules that were skipped as a whole, with their reasons."""
        return _pairs(self._recorded.get("modules"))

    def _cause(self, raw: object) -> Dict[str, JsonValue]:
        if not isinstance(raw, dict) or not isinstance(raw.get("count"), int):
            raise ValueError(f"who deselects must be an object with a count, not {raw!r:.80}")
        by = _text(raw.get("by"))
        tests: List[JsonValue] = [_text(test) for test in _list(raw, "tests")]
        count: int = raw["count"]
        return {"by": by, "count": count, "tests": tests, "asked": self._is_requested(by)}

    def _is_requested(self, by: str) -> bool:
        """Return whether the job's arguments have the option (as ``-k``, or as ``-kgpu``).

        What ``--stepwise`` leaves out is said by a file of an earlier run, not by the arguments.
        """
        if by not in _SELECTIONS:
            return False
        return any(argument.startswith(by) for argument in self._arguments)


def _rows(value: JsonValue) -> "List[Dict[str, JsonValue]]":
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _rows_of(row: Mapping[str, JsonValue], key: str) -> Sequence[JsonValue]:
    value = row.get(key)
    return value if isinstance(value, list) else []


def _pairs(value: JsonValue) -> "List[Tuple[str, str]]":
    rows = value if isinstance(value, list) else []
    return [(str(row[0]), str(row[1])) for row in rows if isinstance(row, list)]


def _some(tests: Sequence[str]) -> str:
    more = f" and {len(tests) - _SHOWN} more" if len(tests) > _SHOWN else ""
    return ", ".join(tests[:_SHOWN]) + more


def _list(line: Fields, key: str) -> List[object]:
    value = line.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list, not {value!r:.80}")
    return value[:_NAMED]


def _pair(raw: object) -> List[JsonValue]:
    if not isinstance(raw, list) or len(raw) != 2:
        raise ValueError(f"a pair is needed, not {raw!r:.80}")
    return [_text(raw[0]), _text(raw[1])]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is needed, not {value!r:.80}")
    return value
