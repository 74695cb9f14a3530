"""What a fork or a signal's handler must not come into the middle of."""
