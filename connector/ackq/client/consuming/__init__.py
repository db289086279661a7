"""Consuming (rules C): channels, consumers, acknowledge modes, settlements."""
