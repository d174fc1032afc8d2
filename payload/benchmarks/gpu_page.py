"""Render the JSON of `benchmarks.gpu` as a Markdown page."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]
_CELL = 160  # characters of a reason
_NAMED = re.compile(r"[\w.]*(Error|Exception|OutOfResources|Refused)\b")
_SAVED = (
    "Both arms of linear_cross_entropy compute the same three products: without any pass over the"
    " logits it could be about 1.15x as fast at width 2,048, not more. Its memory is compared at"
    " 16,384 tokens, as at 4,096 the gradients alone are 0.34x of torch.compile's."
)


def page(document: Json) -> str:
    """Render the machine, a row per target, and which kernels to keep."""
    parts = ["# Kernels and speed on this device", "", *_machine(document), ""]
    if document["small"]:
        parts += ["**Tiny sizes: a trial of the machinery. No figure here means anything.**", ""]
    proved = [one for one in document["benchmarks"] if "passed" in one]
    if proved:
        parts += ["## Correctness", ""]
        parts += [*_table(("suites", "passed", "failed", "skipped"), [*map(_proof, proved)]), ""]
    parts += ["## Targets", ""]
    parts += ["A ratio is the baseline's time over ours, with its confidence interval.", ""]
    parts += _table(
        ("target", "ours", "baseline", "ratio", "goal", "of the roofline", "peak memory"),
        [_target(one) for one in document["benchmarks"] if "passed" not in one],
    )
    kernels = [one for one in document["benchmarks"] if one["target"].startswith("kernels/")]
    against = [one for one in kernels if one["target"].endswith("/compile")]
    parts += ["", "## Kernels against torch.compile", ""]
    parts += [
        *_table(("kernel", "ratio", "verdict"), [_kernel(one) for one in against]),
        "",
        _SAVED,
    ]
    short = [one for one in document["benchmarks"] if "profile" in one or "unprofiled" in one]
    if short:
        parts += ["", "## Where the time goes, of what falls short", ""]
        parts += _table(("target", "arm", "µs a call", "calls", "kernel"), _profiles(short))
    return "\n".join(parts) + "\n"


def verdict(one: Json) -> str:
    """Return whether to keep a kernel, with the reason: faster with certainty, or saves memory."""
    if "refused" in one:
        return f"not asked: {_short(one['refused'])}"
    if "ratio" not in one:
        return "not known: the benchmark failed"
    low, high = one["ratio"]["low"], one["ratio"]["high"]
    if low > 1:
        return "keep: faster than torch.compile"
    if one["memory_goal_met"]:
        return f"keep: {one['memory_ratio']:.2f}x the memory of torch.compile"
    return "remove: slower" if high < 1 else "remove: no faster, no slower"


def _machine(document: Json) -> list[str]:
    machine = document["machine"]
    names = ("device", "torch", "cuda", "triton", "transformers")
    lines = [f"- {name}: {machine[name] or 'none'}" for name in names]
    lines += [f"- {name}: {machine[name]}" for name in ("uuid", "commit") if machine.get(name)]
    lines.append(f"- driver: {machine['driver'] or 'not document'}")
    lines.append(f"- copy bandwidth measured here: {machine['copy_bytes_per_s'] / 1e9:.0f} GB/s")
    peaks = [f"{n} {rate / 1e12:.0f}" for n, rate in machine["peak_flops"].items() if rate]
    lines.append(f"- peak rates by its properties, TFLOP/s: {', '.join(peaks) or 'not known'}")
    return lines


def _proof(one: Json) -> tuple[str, ...]:
    failed = "<br>".join([str(one["failed"]), *one["failures"]])
    if "error" in one:
        failed += f"; **{_short(one['error'])}**"
    return one["target"], str(one["passed"]), failed, str(one["skipped"])


def _target(one: Json) -> tuple[str, ...]:
    if "rejected" in one:
        return (one["target"], "", "", "", f"**rejected**: {_short(one['rejected'])}", "", "")
    if "refused" in one:
        return (one["target"], "", "", "", f"refused: {_short(one['refused'])}", "", "")
    if "error" in one:
        return (one["target"], "", "", "", f"**failed**: {_short(one['error'])}", "", "")
    if "ratio" not in one:
        error = one["equality"]["error"]
        return (
            one["target"],
            one["subject"],
            one["baseline"],
            "",
            f"**not equal**: {error}",
            "",
            "",
        )
    ratio = one["ratio"]
    output = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    return (
        one["target"],
        one["subject"],
        one["baseline"],
        output,
        _goals(one),
        _roofline(one["roofline"]),
        _memory(one),
    )


def _goals(one: Json) -> str:
    marks = []
    if one["goal"] is None:
        low, high = one["ratio"]["low"], one["ratio"]["high"]
        marks.append("**lost**" if high < 1 else "ahead" if low > 1 else "even")
    else:
        lost = one["ratio"]["high"] < 1
        word = "met" if one["goal_met"] else "**lost**" if lost else "**missed**"
        if one["goal_met"] and one["ratio"]["low"] < one["goal"]:
            word = "met by the median"
        marks.append(f"{one['goal']:g}x {word}")
    if one["memory_goal"] is not None:
        word = {True: "met", False: "**missed**", None: "not known"}[one["memory_goal_met"]]
        marks.append(f"memory {one['memory_goal']:g}x {word}")
    return ", ".join(marks)


def _roofline(found: Json | None) -> str:
    words = {"compute": "peak operations", "memory": "peak bandwidth", "copy": "a copy"}
    parts = [f"{found[n]:.0%} of {word}" for n, word in words.items() if found and found[n]]
    return ", ".join(parts) or "not known"


def _memory(one: Json) -> str:
    peaks = [one["peak_memory"].get(arm, {}).get("bytes") for arm in ("subject", "baseline")]
    return " / ".join("not known" if n is None else f"{n / 1e6:.0f} MB" for n in peaks)


def _kernel(one: Json) -> tuple[str, ...]:
    name = one["target"].removeprefix("kernels/").removesuffix("/compile")
    ratio = one.get("ratio")
    output = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else ""
    return name, output, verdict(one)


def _profiles(short: list[Json]) -> list[tuple[str, ...]]:
    return [
        (one["target"], arm, f"{row['us']:.1f}", f"{row['calls']:g}", f"`{row['name']}`")
        for one in short
        for arm, rows in one.get("profile", {}).items()
        for row in rows
    ] + [
        (one["target"], "", "", "", f"not known: {_short(one['unprofiled'])}")
        for one in short
        if "unprofiled" in one
    ]


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [titles, ("---",) * len(titles), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _short(text: str) -> str:
    """Return the last line that names an error, else the last line, shortened for a table cell."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return ([line for line in lines if _NAMED.match(line)] or lines)[-1][:_CELL]
