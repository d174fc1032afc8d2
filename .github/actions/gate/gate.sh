#!/usr/bin/env bash
# Asks a gate, keeps the signed verdict and says it in words. Ends as `seatrial gate check` does:
# 0 pass, 1 fail, 2 usage, 4 token refused, 5 inconclusive, 7 waited too long, 10 exceptions (strict).
#
# SEATRIAL_URL, SEATRIAL_TOKEN, GATE_POLICY, GATE_OUT (a folder); GATE_RUN, GATE_LINEAGE, GATE_STRICT,
# GATE_TIMEOUT where they are not empty. Writes GITHUB_OUTPUT and GITHUB_STEP_SUMMARY where set.
set -uo pipefail

mkdir -p "$GATE_OUT"
words=(--json --output "$GATE_OUT/verdict.dsse.jsonl")
if [ -n "${GATE_RUN:-}" ]; then words+=(--run "$GATE_RUN"); fi
if [ -n "${GATE_LINEAGE:-}" ]; then words+=(--lineage "$GATE_LINEAGE"); fi
if [ -n "${GATE_TIMEOUT:-}" ]; then words+=(--timeout "$GATE_TIMEOUT"); fi
if [ "${GATE_STRICT:-false}" = true ]; then words+=(--strict); fi

seatrial gate check "${words[@]}" -- "$GATE_POLICY" > "$GATE_OUT/verdict.json"
code=$?

field() {
  python3 - "$1" "$GATE_OUT/verdict.json" <<'PYTHON'
import json, re, sys
try:
    said = str(json.load(open(sys.argv[2], encoding="utf-8")).get(sys.argv[1], ""))
except (OSError, ValueError, AttributeError):
    said = ""
print(said if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", said) else "")
PYTHON
}
decision=$(field decision)
verdict=$(field id)

{
  echo "decision=$decision"
  echo "verdict=$verdict"
  echo "code=$code"
} >> "${GITHUB_OUTPUT:-/dev/null}"

# Four spaces make a block in which nothing is markup: names of tests may hold anything.
{
  printf '## Seatrial gate: %s\n\n' "${decision:-no verdict (exit code $code)}"
  if [ -n "$verdict" ]; then
    NO_COLOR=1 seatrial gate explain "$verdict" | sed 's/^/    /'
  fi
} | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}" | sed 's/^/| /' # a line is never a runner's command

exit "$code"
