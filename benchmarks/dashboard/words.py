"""Names and texts of tests, failures, skips and benchmarks; and harmful variants of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

AREAS = (
    "linalg", "attention", "autograd", "fusion", "quantize", "distributed", "checkpoint",
    "tokenizer", "sampling", "optimizer", "scheduler", "dataloader", "sparse", "fft", "conv",
    "norm", "embedding", "rope", "moe", "cache", "export", "graph", "memory", "streams",
)  # fmt: skip
VERBS = (
    "matches_reference", "keeps_dtype", "is_deterministic", "rejects_bad_shape", "round_trips",
    "handles_empty", "frees_memory", "backward", "broadcasts", "survives_nan", "compiles",
    "matches_eager",
)  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16", "int8")
SHAPES = ("1x1", "17x33", "128x128", "4096x4096", "2x8x1024")


def nodeids(count: int) -> list[tuple[str, str]]:
    """Return `count` tests as (suite, node id), in the order of collection."""
    found: list[tuple[str, str]] = []
    number = 0
    while len(found) < count:
        area = AREAS[number % len(AREAS)]
        turn = number // len(AREAS)
        verb = VERBS[turn % len(VERBS)]
        turn //= len(VERBS)
        dtype, shape = DTYPES[turn % len(DTYPES)], SHAPES[turn // len(DTYPES) % len(SHAPES)]
        turn //= len(DTYPES) * len(SHAPES)
        suite = "integration" if number % 10 in (3, 7) else "unit"
        name = f"Test{area.title()}{turn or ''}::test_{area}_{verb}[{dtype}-{shape}]"
        found.append((suite, f"tests/{suite}/test_{area}.py::{name}"))
        number += 1
    # As pytest collects: by file, and within it as it stands there.
    return sorted(found, key=lambda one: (one[0] == "integration", one[1].split("::")[0]))


SKIPS = {
    "device": "needs CUDA",
    "devices": "needs 2 devices, found 1",
    "capability": "needs compute capability 8.9 or newer",
    "network": "needs the network",
}
XFAIL = "known to lose precision in int8, see #4812"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A kind of failure; `{a}` and `{n}` in its message vary."""

    exception: str
    message: str
    frame: str
    function: str
    reason: str = ""

    def told(self, number: int, test: str) -> tuple[str, str]:
        """Return message and traceback of one occurrence."""
        message = self.message.format(a=f"0x7f{number * 7919 % 0xFFFFFF:06x}", n=number % 97)
        said = f"{self.exception}: {message}" if self.exception != "AssertionError" else message
        path, function = test.split("::")[0], test.split("::")[-1].split("[")[0]
        text = (
            f"{path}:{number % 180 + 12}: in {function}\n"
            f"    got = {self.function}(x, y, out=out)\n"
            f"{self.frame}:{number % 40 + 210}: in {self.function}\n"
            f"    return _checked(handle, plan.launch(stream))\n"
            f"E   {said}"
        )
        return said, text


_TROUBLES = (
    ("AssertionError", "assert {n}.25 <= 1e-05  (largest difference, of 4096)", "kernels"),
    ("RuntimeError", "CUDA error: an illegal memory access was encountered at {a}", "launch"),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate {n}.00 MiB", "allocator"),
    ("ValueError", "expected a tensor of 3 dimensions, got {n}", "shapes"),
    ("TimeoutError", "collective all_reduce timed out after {n} s", "comms"),
    ("KeyError", "'attn.qkv.weight' ({n} keys are missing)", "checkpoint"),
    ("NotImplementedError", "no kernel for int8 on this device", "dispatch"),
    ("TypeError", "fused_norm() got an unexpected keyword argument 'eps_mode'", "norm"),
)


def troubles(count: int) -> list[Trouble]:
    """Return `count` kinds of failures."""
    made = []
    for number in range(count):
        exception, message, module = _TROUBLES[number % len(_TROUBLES)]
        area = AREAS[number * 5 % len(AREAS)]
        turn = number // len(_TROUBLES)
        made.append(
            Trouble(
                exception,
                message if exception == "AssertionError" else f"{area}: {message}",
                f"aurora/{area}/{module}.py",
                f"{VERBS[turn % len(VERBS)]}_{chr(97 + turn // len(VERBS) % 26)}",
            )
        )
    return made


OPERATIONS = (
    "matmul", "bmm", "softmax", "layer_norm", "rms_norm", "conv2d", "attention", "rope", "gelu",
    "topk", "scatter", "gather", "cumsum", "sort", "fft", "dropout", "embedding", "all_reduce",
    "quantize", "dequantize", "moe_route", "kv_append", "sample", "adamw", "cast",
)  # fmt: skip


def metrics(count: int) -> list[tuple[str, dict[str, object]]]:
    """Return `count` benchmarks: names and parameters."""
    named = []
    for number in range(count):
        operation = OPERATIONS[number % len(OPERATIONS)]
        turn = number // len(OPERATIONS)
        dtype, shape = DTYPES[turn % len(DTYPES)], SHAPES[turn // len(DTYPES) % len(SHAPES)]
        name = f"{operation}.{dtype}.{shape}"
        named.append((name, {"operation": operation, "dtype": dtype, "shape": shape}))
    return named


HARM = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg/onload=fetch('//evil.example')>",
    "</script></style><!--",
    "javascript:alert(1)//",
    "{{ 7*7 }}{% raw %}${7*7}",
    "\x1b[31;1mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\u202egnp.exe\u202c \u2066isolate\u2069",
    "zero\u200bwidth\u200d\ufeffjoin\u00ad",
    "a\u0301\u0302\u0303\u0304\u0305\u0306" * 6,
    "| pipe | `tick` | [link](javascript:alert(1)) |\r\n| - |",
    "=cmd|' /C calc'!A0",
    "'; DROP TABLE run; --",
    "tab\there\x08\x7f\x85\u2028line\u2029",
    "ｆｕｌｌｗｉｄｔｈ 漢字かな العربية עברית 🧪👩‍🔬",
)
"""Texts that are harmful if they are interpreted as markup, commands or control sequences."""


def harmful(number: int, *, length: int = 0) -> str:
    """Return one of `HARM`, repeated up to a length."""
    word = HARM[number % len(HARM)]
    if length <= len(word):
        return word
    glue = "" if number % 2 else " "
    return ((word + glue) * (length // len(word) + 1))[:length]


def spoil(
    named: Sequence[tuple[str, str]], chance: random.Random, *, share: float = 0.3
) -> list[tuple[str, str]]:
    """Return the same tests, a share of them with harmful but unique names."""
    spoilt = []
    for number, (suite, nodeid) in enumerate(named):
        if chance.random() < share:
            length = 0 if number % 9 else 3_000
            nodeid = f"{nodeid[:-1]}-{number}-{harmful(number, length=length)}]"
        spoilt.append((suite, nodeid))
    return spoilt
