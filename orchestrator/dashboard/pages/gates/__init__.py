"""Gates: what they decided, by which policy, and what people said to them."""
