"""Rules that recompute a report's figures, without code shared with the views."""
