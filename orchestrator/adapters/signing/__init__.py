"""Signatures: Ed25519 over in-toto statements in DSSE envelopes."""
