"""The engines, which observe a program's allocations (base.py)."""
