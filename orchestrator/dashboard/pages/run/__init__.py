"""One run: the outcome of its cells and jobs, its failures and its cost."""
