"""HTTP next to gRPC, off unless requested: health, metrics and the operators' page (M1)."""
