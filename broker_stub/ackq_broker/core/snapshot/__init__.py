"""Snapshots of the state: their format, and how one is taken while commands go on."""
