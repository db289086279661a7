"""Consuming (rules C): channels, consumers, acknowledge modes and settlements."""
