"""Turn vmprof profiles into the formats of other viewers."""
