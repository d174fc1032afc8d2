"""The release board: can it ship, what runs, and how the pass rates went."""
