"""Publishing (rules P, K3, K12): confirm mode, transactions, writer batches."""
