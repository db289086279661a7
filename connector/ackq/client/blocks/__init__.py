"""Blocks of messages: the Arrow columns of what is published, and of what is delivered."""
