"""What a profile answers: sums, changes, leaks, thresholds."""
