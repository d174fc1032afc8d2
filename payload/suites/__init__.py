"""Test suites of torchbridge, and the references and fakes that they share."""
