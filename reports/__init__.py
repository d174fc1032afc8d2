"""Reports: documents that are made from stored evidence, and from nothing else."""
