"""Application operations, one per module; they use stores and ports, and no technology."""
