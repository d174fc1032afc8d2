"""Reports: documents generated from stored evidence alone."""
