"""Leaks: which allocation sites and types keep growing, and by how much."""
