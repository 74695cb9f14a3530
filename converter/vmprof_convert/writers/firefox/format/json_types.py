"""The type of what goes into the file."""
from __future__ import annotations

from typing import Any

#: a JSON object
Json = dict[str, Any]
