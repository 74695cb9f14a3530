"""The engine for a PyPy that was translated with this project's patches (engine.py)."""
