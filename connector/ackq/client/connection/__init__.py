"""Connections to a broker: gRPC channels, calls with retries, and their errors."""
