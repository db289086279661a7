"""What may and must be true of the messages of a simulated world."""
