"""Publishing (rules P, K3): publisher streams, transactions, stages."""
