"""What cannot be told from the truth: deliberate code inside the test process."""

INHERENT = {
    "text": "a test or fixture says what it tests; only who reads it sees that it is too little",
    "hook": "a hook of the payload's decides what a test came to; the verdict names its file",
    "selection": "a test is left out before there is a green run; the verdict names it",
    "patched subject": "the installed module is in use; what it holds was changed from inside",
    "patched pytest": "the installed pytest is in use; what it holds was changed from inside",
    "words": "a program prints what it likes",
}
"""Kinds of inherent lies; docs/explanation/trust.md tells of each."""
