"""The plugin's options and markers by name, and their default values."""
from __future__ import annotations

import os
from typing import Any

OPTION = "--allocations"
INTERVAL = "--allocations-interval"
FOLDER = "--allocations-dir"
LIMIT_ALLOCATIONS, LIMIT_LEAKS = "limit_allocations", "limit_leaks"
LIMIT_MEMORY = "limit_memory"
LIMITS = LIMIT_ALLOCATIONS, LIMIT_LEAKS, LIMIT_MEMORY
DEFAULT_INTERVAL = "16k"
#: Default numbers of calls of a test with LIMIT_LEAKS: before the measurement, and
#: during the measurement.
WARM_UP, REPEAT = 3, 10


def setting(config: Any, option: str) -> Any:
    """Return the value of an option, or its value in pytest.ini if it is not given.

    The names in pytest.ini have no hyphens, as in allocations_interval.
    """
    return config.getoption(option) or config.getini(_in_file(option))


def profiles_folder(config: Any) -> str:
    """Return the path of FOLDER, or "" if no profiles are kept.

    A relative path of the option begins in the folder in which pytest was started, and
    a relative path of pytest.ini in rootdir.
    """
    folder: str = config.getoption(FOLDER) or ""
    base: str = str(config.invocation_params.dir)
    if not folder:
        folder, base = config.getini(_in_file(FOLDER)), str(config.rootpath)
    return os.path.join(base, folder) if folder else ""


def _in_file(option: str) -> str:
    return option.lstrip("-").replace("-", "_")
