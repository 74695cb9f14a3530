"""The engines for a PyPy that was translated with this project's patches."""
