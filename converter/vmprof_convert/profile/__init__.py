"""A profile in memory: samples, stacks, types, and those of several processes."""
