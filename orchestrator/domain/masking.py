"""Messages without what changes from run to run: addresses, paths, times, numbers."""

from __future__ import annotations

import re

_READ = 2_000
"""Characters of a message that are looked at."""
_KEPT = 300
"""Characters of a masked message."""

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), mask_variable_parts)
    for pattern, mask_variable_parts in (
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", "<url>"),
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b",
            "<time>",
        ),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b0x[0-9a-fA-F]+\b", "<addr>"),
        (r"(?<![\w/.])[A-Za-z]:\\[\w .\\@+~-]+", "<path>"),
        (r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@+~=-]+){2,}/?", "<path>"),
        (r"(?<![\w/.-])[\w.-]++(?:/[\w.@+~=-]+){2,}", "<path>"),
        (r"(?<![\w/.-])[\w.-]++/[\w.-]*\.[A-Za-z]\w*", "<path>"),
        (r"\b(cuda|xpu|hpu|mps|xla|tpu|gpu|npu|cpu):\d+\b", r"\1:<n>"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b", "<hex>"),
        (r"(?<![A-Za-z_])\d+(?:x\d+)+", "<n>"),
        (r"(?<![A-Za-z_\d.])[-+]?\d[\d_]*(?:\.\d*)*(?:[eE][-+]?\d+)?", "<n>"),
        (r"<n>(?:\s*[,x]\s*<n>)+", "<n>"),
        (r"\s+", " "),
    )
)


def mask_variable_parts(message: str) -> str:
    """One line of the message, with marks for what is not the same every time."""
    line = message.strip().split("\n", 1)[0][:_READ]
    for pattern, mark in _MASKS:
        line = pattern.sub(mark, line)
    line = line.strip()
    return line if len(line) <= _KEPT else line[: _KEPT - 1] + "\N{HORIZONTAL ELLIPSIS}"
