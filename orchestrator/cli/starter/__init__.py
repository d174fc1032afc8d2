"""`seatrial init`: inspects a project and writes its files."""
