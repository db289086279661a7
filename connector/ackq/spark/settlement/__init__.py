"""Settlement from a query (rules S6, K8): outcomes of rows, staged by tasks, committed once."""
