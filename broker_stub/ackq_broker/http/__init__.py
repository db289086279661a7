"""HTTP beside gRPC, off unless asked for: health, metrics and the operators' page (M1)."""
