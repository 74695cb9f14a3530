"""The engine for a stock PyPy: see engine.py."""
