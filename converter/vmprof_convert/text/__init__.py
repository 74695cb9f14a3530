"""How numbers, names and moments are written for people."""
