"""Assembly: merges parsed foreign artifacts into the evidence of one cell. Start at `merge`."""
