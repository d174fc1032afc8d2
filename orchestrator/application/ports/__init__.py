"""What the operations need of the world."""
