"""What the web faces take from npm: which version, which files, and the copying of them."""
