"""Sets up a user's Google Cloud project: permissions and the kill switch; checks both."""
