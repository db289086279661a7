"""The sink (rules K3, K4, K12): rows staged by tasks, a batch committed by the driver."""
