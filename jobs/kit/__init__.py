"""What the jobs share: set-up and reconciliation, JSON of rows, the flights that they move."""
