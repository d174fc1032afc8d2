"""Reports that others wrote: read as documents, and held against their own figures."""
