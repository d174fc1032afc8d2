"""What can be done: one operation a module, told through ports; no technology."""
