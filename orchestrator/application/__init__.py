"""The operations, one a module: they use the stores and ports, and no technology."""
