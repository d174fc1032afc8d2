#!/usr/bin/env bash
# Writes into a pull request what the run behind a verdict did: one comment a gate, replaced at each push.
# One that cannot be written is a warning: the gate has decided, whether people are told here or not.
#
# SEATRIAL_URL, SEATRIAL_TOKEN, GATE_OUT (with the verdict.json of gate.sh), GH_REPO, GH_TOKEN and
# COMMENT_ON (the pull request's number). Needs `gh`, which GitHub's runners have.
set -euo pipefail
warn() {
  echo "::warning title=Seatrial::the pull request has no new comment: see the lines above. The job" \
    "needs permissions: {pull-requests: write}. The decision of the gate stands."
  exit 0
}
trap warn ERR

read -r run gate < <(python3 - "$GATE_OUT/verdict.json" <<'PYTHON'
import json, re, sys
verdict = json.load(open(sys.argv[1], encoding="utf-8"))
words = str(verdict["runs"][0]), str(verdict["gate"])
print(*(re.sub(r"[^A-Za-z0-9_.-]", "-", word)[:100] for word in words))
PYTHON
)
mark="<!-- seatrial: $gate -->"
report=$(seatrial report "$run" --kind comment)
printf '%s\n%s\n\n[Page of the run](%s/runs/%s)\n' \
  "$mark" "$report" "${SEATRIAL_URL%/}" "$run" > "$GATE_OUT/comment.md"

# Only a comment of this token's own account is replaced: anybody may write the mark.
account=$(gh api graphql -f 'query={viewer{login}}' --jq .data.viewer.login)
comments=$(gh api --paginate "repos/$GH_REPO/issues/$COMMENT_ON/comments" \
  --jq '.[] | {id, by: .user.login, body}')
old=$(python3 -c '
import json, sys
account, mark = sys.argv[1:]
for comment in map(json.loads, sys.stdin):
    if comment["by"] == account and comment["body"].startswith(mark):
        print(comment["id"])
        break
' "$account" "$mark" < <(printf '%s' "$comments"))
if [ -n "$old" ]; then
  gh api --method PATCH "repos/$GH_REPO/issues/comments/$old" -F "body=@$GATE_OUT/comment.md" --silent
else
  gh api --method POST "repos/$GH_REPO/issues/$COMMENT_ON/comments" -F "body=@$GATE_OUT/comment.md" --silent
fi
