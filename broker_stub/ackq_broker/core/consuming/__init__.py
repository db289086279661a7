"""Consuming (rules C): channels and the settlement of their deliveries."""
