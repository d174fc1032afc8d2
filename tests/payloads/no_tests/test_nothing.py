"""No tests in here."""
