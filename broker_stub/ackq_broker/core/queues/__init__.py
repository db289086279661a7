"""Queues (rules Q, C6, C13, C14): topology, routing, bounds, redelivery, dead letters, timers."""
