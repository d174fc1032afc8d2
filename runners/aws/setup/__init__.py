"""Sets up a user's AWS account: permissions and the kill switch; checks both."""
