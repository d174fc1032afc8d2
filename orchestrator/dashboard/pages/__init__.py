"""One module a page: its address, and what stands on it."""
