#!/usr/bin/env bash
set -euo pipefail
export SEATRIAL_URL=${SEATRIAL_URL:-https://seatrial.example.org} # SEATRIAL_TOKEN from a secret
run=$(seatrial run "$MATRIX" -y --detach || [ $? -eq 130 ])       # 130: it goes on without us
seatrial watch "$run" --timeout 60 || true                        # the gate decides, not this
code=0
seatrial gate check "$POLICY" --run "$run" --output verdict.dsse.jsonl || code=$?
seatrial gate keys export --output keyring.json
seatrial gate verify verdict.dsse.jsonl --key keyring.json        # offline, by anybody, later
exit "$code"
