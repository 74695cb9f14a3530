"""The plugin's options and markers by name, and their default values."""
from __future__ import annotations

OPTION = "--allocations"
INTERVAL = "--allocations-interval"
LIMIT_ALLOCATIONS, LIMIT_LEAKS = "limit_allocations", "limit_leaks"
DEFAULT_INTERVAL = "16k"
#: Calls of a test with LIMIT_LEAKS before the measurement, and during the measurement.
WARM_UP, REPEAT = 3, 10
