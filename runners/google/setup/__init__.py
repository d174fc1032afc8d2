"""A user's Google Cloud project made ready: permissions, the kill switch, and their check."""
