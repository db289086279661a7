"""What an operator sees of a running broker: its log."""
