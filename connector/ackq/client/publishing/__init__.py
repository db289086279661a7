"""Publishing (rules P, K3): publishers with confirms, transactions, stages of writer batches."""
