"""Fuzz every dialect in a process of its own: ``python -m tests.fuzz [SECONDS] [DIALECT ...]``.

The corpus begins with the files of ``tests/golden``. Exits with 1 if any broke, and says where the
input is that broke it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from orchestrator.adapters.result_parsers.registry import FileDialects

GOLDEN = Path(__file__).parents[1] / "golden"
KEPT = Path("var") / "fuzz"
SEEDS = ("foreign", "logs", "transcribed")
SEED_BYTES = 20_000
SEED = "1"
"""Of the inputs that are drawn, the same in every run; more seconds draw more."""


def main() -> int:
    """Run them all, one line each."""
    words = sys.argv[1:]
    seconds = int(words.pop(0)) if words and words[0].isdigit() else 60
    names = words or list(FileDialects().names)
    return max([_fuzz(name, seconds) for name in names], default=0)


def _fuzz(name: str, seconds: int) -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _seed(folder / "corpus")
        command = [sys.executable, "-m", "tests.fuzz.one", name, str(seconds), str(folder), SEED]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds + 600
        )
        runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        tried = f"{int(runs[1]):,} inputs" if runs else "an unknown number of inputs"
        broke = sorted(folder.glob("*-????????????????????????????????????????"))
        if done.returncode == 0 and not broke:
            print(f"{name}: {tried} in {seconds} s, none broke it", flush=True)
            return 0
        KEPT.mkdir(parents=True, exist_ok=True)
        kept = [str(shutil.copy(path, KEPT / f"{name}-{path.name}")) for path in broke]
        said = done.stderr.strip().splitlines()[-25:]
        print(f"{name}: broken after {tried}; kept: {', '.join(kept) or 'nothing'}", flush=True)
        print("\n".join(f"    {line}" for line in said), flush=True)
        return 1


def _seed(folder: Path) -> None:
    folder.mkdir()
    wanted = [path for part in SEEDS for path in sorted(GOLDEN.glob(f"{part}/**/*"))]
    for number, path in enumerate(path for path in wanted if path.is_file()):
        (folder / f"{number:04d}").write_bytes(path.read_bytes()[:SEED_BYTES])


if __name__ == "__main__":
    sys.exit(main())
