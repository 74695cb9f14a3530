"""The type of JSON objects."""
from __future__ import annotations

from typing import Any

#: a JSON object
Json = dict[str, Any]
