"""The ways to get at the allocations: see base.py."""
