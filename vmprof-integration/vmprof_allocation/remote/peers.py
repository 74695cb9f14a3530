"""Find out which process is at the other end of a Unix socket, from the kernel."""
from __future__ import annotations

import struct

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: constants of Linux that PyPy's modules do not have
_SOL_SOCKET, _SO_PEERCRED = 1, 17
_CREDENTIALS = struct.Struct("=iII")


def pid_and_user(connection: Any) -> tuple[int, int]:
    """Return the pid and the user ID of the peer.

    Raises:
        OSError: the kernel does not know the peer.
    """
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(
        _SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
