"""Rules about foreign reports; each is a function from a document to what is wrong with it."""
