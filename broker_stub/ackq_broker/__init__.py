"""The reference broker of ackq: small, single-node, and correct. `embedded()` starts one for a program or notebook."""
