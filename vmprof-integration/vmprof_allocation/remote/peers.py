"""Who is at the other end of a Unix socket, by the kernel's word."""
from __future__ import annotations

import struct

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Linux's; they have no names in PyPy's modules
_SOL_SOCKET, _SO_PEERCRED = 1, 17
_CREDENTIALS = struct.Struct("=iII")


def pid_and_user(connection: Any) -> tuple[int, int]:
    """Raises OSError."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(
        _SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
