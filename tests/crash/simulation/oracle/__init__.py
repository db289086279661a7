"""The oracle: checks which states of a simulated world's messages the rules allow."""
