"""Reads the literal arguments of ``setup()`` in a setup.py, which is never executed."""

from __future__ import annotations

import ast
import configparser
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FILE = "setup.py"
_TAKEN = ("name", "version", "install_requires", "extras_require")


@dataclass(frozen=True, slots=True)
class SetupScript:
    """Arguments of ``setup()``; empty without a setup.py."""

    is_there: bool = False
    literals: Mapping[str, object] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    """Arguments that are no literals, or that differ between several calls."""

    def fill(self, setup_cfg: configparser.ConfigParser) -> None:
        """Add the literals that setup.cfg lacks; like setuptools, prefer values of setup.cfg."""
        for key, value in self.literals.items():
            if key == "extras_require" and isinstance(value, Mapping):
                for extra, listed in value.items():
                    _add(setup_cfg, "options.extras_require", str(extra), listed)
            else:
                section = "metadata" if key in ("name", "version") else "options"
                _add(setup_cfg, section, key, value)

    def notes(self) -> Iterator[str]:
        """Yield a note for each list of requirements that is not a literal."""
        for key in sorted(self.computed & {"install_requires", "extras_require"}):
            yield (
                f"{key} of {_FILE} was passed over, as it is no literal: name the packages that the"
                " tests need in `pip` of payload.toml"
            )


def read_setup_script(folder: Path) -> SetupScript:
    """Parse the setup.py of a project, if it has one. Raises OSError."""
    path = folder / _FILE
    if not path.is_file():
        return SetupScript()
    calls = list(_calls(path.read_bytes()))
    literals: dict[str, object] = {}
    computed: set[str] = set()
    for keyword in (keyword for call in calls for keyword in call.keywords):
        key = keyword.arg
        if key not in _TAKEN:
            continue
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError):
            computed.add(key)
            continue
        if literals.setdefault(key, value) != value:
            computed.add(key)
    known = {key: value for key, value in literals.items() if key not in computed}
    return SetupScript(is_there=True, literals=known, computed=frozenset(computed))


def _calls(source: bytes) -> Iterator[ast.Call]:
    """Yield the calls of ``setup``; none if this Python cannot parse the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "setup":
                yield node


def _add(setup_cfg: configparser.ConfigParser, section: str, key: str, value: object) -> None:
    lines: list[object] = [*value] if isinstance(value, list | tuple) else [value]
    texts = [line for line in lines if isinstance(line, str)]
    if len(texts) != len(lines):
        return
    if not setup_cfg.has_section(section):
        setup_cfg.add_section(section)
    if not setup_cfg.has_option(section, key):
        setup_cfg.set(section, key, "\n".join(texts))
