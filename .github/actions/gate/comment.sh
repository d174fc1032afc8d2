#!/usr/bin/env bash
# Writes into a pull request what the run behind a verdict did: one comment a gate, replaced at each push.
#
# SEATRIAL_URL, SEATRIAL_TOKEN, GATE_OUT (with the verdict.json of gate.sh), GH_REPO, GH_TOKEN and
# COMMENT_ON (the pull request's number). Needs `gh`, which GitHub's runners have.
set -euo pipefail

read -r run gate < <(python3 - "$GATE_OUT/verdict.json" <<'PYTHON'
import json, re, sys
verdict = json.load(open(sys.argv[1], encoding="utf-8"))
words = str(verdict["runs"][0]), str(verdict["gate"])
print(*(re.sub(r"[^A-Za-z0-9_.-]", "-", word)[:100] for word in words))
PYTHON
)
mark="<!-- seatrial: $gate -->"
{
  echo "$mark"
  seatrial report "$run" --kind comment
  printf '\n[Page of the run](%s/runs/%s)\n' "${SEATRIAL_URL%/}" "$run"
} > "$GATE_OUT/comment.md"

old=$(gh api --paginate "repos/$GH_REPO/issues/$COMMENT_ON/comments" \
  --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$old" ]; then
  gh api --method PATCH "repos/$GH_REPO/issues/comments/$old" -F "body=@$GATE_OUT/comment.md" --silent
else
  gh api --method POST "repos/$GH_REPO/issues/$COMMENT_ON/comments" -F "body=@$GATE_OUT/comment.md" --silent
fi
