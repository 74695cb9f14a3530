"""The engine for a PyPy that was translated with our patches: see engine.py."""
