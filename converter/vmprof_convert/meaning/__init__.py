"""What samples stand for: estimates, fates, and whose code a frame is."""
