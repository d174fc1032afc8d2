"""Use cases of torchbridge."""
