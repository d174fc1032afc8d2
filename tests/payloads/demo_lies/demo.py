"""A demo that says that it failed, and ends as if it had not."""

print("  [PASS] adds")
print("  [FAIL] converges: loss went up")
print("Results: 1/2 demos passed")
