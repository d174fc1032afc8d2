"""Rules that recompute a report's figures; they share no code with the views that made them."""
