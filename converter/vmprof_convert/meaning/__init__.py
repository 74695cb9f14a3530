"""The meaning of recorded data: estimates, outcomes, names and origins."""
