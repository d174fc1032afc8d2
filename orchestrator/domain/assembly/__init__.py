"""Assembly: from what foreign artifacts say to the evidence of one cell. Begin at `whole`."""
