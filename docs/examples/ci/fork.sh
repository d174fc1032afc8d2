#!/usr/bin/env bash
# Launches the code of a fork as untrusted; sets its commit's status, and comments on its pull request.
# Starts in a checkout of the base branch, with the fork's tree in the folder `fork`.
#
# SEATRIAL_URL, SEATRIAL_TOKEN (scope run), MATRIX, HEAD_SHA (as GitHub tells it), GH_REPO, GH_TOKEN.
set -euo pipefail
run=$(seatrial run "$MATRIX" --untrusted fork --commit "$HEAD_SHA" -y --detach || [ $? -eq 130 ])
code=0
seatrial watch "$run" --timeout 60 || code=$?
state=success
[ "$code" -eq 0 ] || state=failure
gh api --method POST "repos/$GH_REPO/statuses/$HEAD_SHA" --silent -f "state=$state" \
  -f context=seatrial/untrusted -f "target_url=${SEATRIAL_URL%/}/runs/$run"
pull=$(gh api "repos/$GH_REPO/commits/$HEAD_SHA/pulls" \
  --jq '[.[] | select(.state == "open") | .number][0] // empty')
if [ -n "$pull" ]; then
  seatrial report "$run" --kind comment > comment.md
  gh api --method POST "repos/$GH_REPO/issues/$pull/comments" --silent -F body=@comment.md
fi
exit "$code"
