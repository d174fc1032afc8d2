"""Assembly: merges parsed artifacts into the evidence of one cell; `merge` has the entry point."""
