"""Security of the broker (A1 to A8): users, permissions, limits, certificates, audit."""
