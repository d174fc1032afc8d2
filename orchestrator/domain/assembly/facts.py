"""One environment from what several artifacts say of it; where they disagree, that is remarked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MOST_KEYS = 5_000
"""Names (packages, mostly) that one environment may have."""


class EnvironmentMerger:
    """Merges what each artifact says; the first word stands."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}
        self.conflicts: list[str] = []
        self._by: dict[tuple[str, ...], str] = {}

    def add(self, source: str, facts: Mapping[str, object]) -> None:
        """Take what one artifact says."""
        self._merge(self.facts, facts, source, ())

    def _merge(
        self,
        into: dict[str, object],
        facts: Mapping[str, object],
        source: str,
        path: tuple[str, ...],
    ) -> None:
        for key, value in facts.items():
            here = (*path, str(key))
            known = into.get(key)
            if value in (None, ""):
                continue
            if isinstance(value, Mapping):
                inner = known if isinstance(known, dict) else {}
                into[key] = inner
                self._merge(inner, value, source, here)
            elif isinstance(value, list | tuple):
                into[key] = self._devices(known, value, source, here)
            elif known is None and len(self._by) < MOST_KEYS:
                into[key], self._by[here] = value, source
            elif known is not None and not _agree(known, value):
                self._disagree(here, known, source, value)

    def _devices(
        self, known: object, said: Sequence[object], source: str, path: tuple[str, ...]
    ) -> list[object]:
        """Devices by position: artifacts of one machine list the same ones."""
        devices = list(known) if isinstance(known, list) else []
        for number, one in enumerate(said):
            if not isinstance(one, Mapping):
                if one not in devices:
                    devices.append(one)
                continue
            if number >= len(devices):
                devices.append({})
            device = devices[number]
            if isinstance(device, dict):
                self._merge(device, one, source, (*path, str(number)))
        return devices

    def _disagree(self, path: tuple[str, ...], known: object, source: str, said: object) -> None:
        first = self._by.get(path, "")
        if first == source or len(self.conflicts) >= 100:
            return
        what = " ".join(part for part in path if part not in ("machine", "packages"))
        self.conflicts.append(
            f"{what}: {first or 'another artifact'} says {known}, {source} says {said}"
        )


def _agree(known: object, said: object) -> bool:
    """Whether one is the other, or only less exact: ``L4`` and ``NVIDIA L4``."""
    if known == said:
        return True
    one, other = str(known).casefold(), str(said).casefold()
    return bool(one and other) and (one in other or other in one)
