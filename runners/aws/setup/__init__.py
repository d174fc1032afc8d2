"""A user's AWS account made ready: permissions, the kill switch, and the check of both."""
