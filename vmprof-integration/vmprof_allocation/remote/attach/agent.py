"""Talk with the thread in the other process: native/attach/agent.h."""
from __future__ import annotations

import os
import select
import socket
import struct
import time

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.peers import pid_and_user

HERE, HAS_GIL, ERROR, STARTED, DONE = "h", "g", "e", "s", "d"
#: the process, or its thread, is gone
END = ""
_UNMAP, STOP = b"u", b"s"

_JOB = struct.Struct("=qii")
#: of the job, too: MAX_JOB in native/attach/agent.c
_MAX_MESSAGE = 65536


class Agent:
    """A context manager: who is not stopped stops at its end."""

    def __init__(self, pid: int, folder: str):
        """The process `pid` is to call, at a socket in `folder`, which is its own."""
        self._pid = pid
        self._connection: socket.socket | None = None
        self.path = os.path.join(folder, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(self.path)
            self._listener.listen(1)
            owner = os.stat(folder)
            if owner.st_uid != os.geteuid():
                os.chown(self.path, owner.st_uid, owner.st_gid)
        except OSError as e:
            self.close()
            raise AllocationSamplingError(
                "can't make a socket in %s: %s; name another place with TMPDIR"
                % (folder, e.strerror or e)) from None

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass            # it was not made

    def accept(self, seconds: float) -> bool:
        """Wait for its call; False: it did not come."""
        deadline = time.monotonic() + seconds
        while select.select([self._listener], [], [],
                            max(0.0, deadline - time.monotonic()))[0]:
            connection = self._listener.accept()[0]
            if pid_and_user(connection)[0] == self._pid:
                self._connection = connection
                return True
            connection.close()
        return False

    def receive(self, seconds: float | None) -> tuple[str, str] | None:
        """What it says, and a text; None: nothing in that time."""
        assert self._connection is not None
        if not select.select([self._connection], [], [], seconds)[0]:
            return None
        try:
            message = self._connection.recv(_MAX_MESSAGE).decode("utf-8", "replace")
        except ConnectionResetError:
            message = END
        return message[:1], message[1:]

    def send_job(self, seconds: float, begin: str, end: str) -> None:
        """Two programs; the second one runs so many seconds behind the first.  Raises
        AllocationSamplingError if they are too long."""
        texts = [text.encode() + b"\0" for text in (begin, end)]
        job = _JOB.pack(int(seconds * 1000), *map(len, texts)) + b"".join(texts)
        if len(job) > _MAX_MESSAGE:
            raise AllocationSamplingError(
                "what process %d is to run has %d bytes, and at most %d are possible; "
                "write a shorter name for the output"
                % (self._pid, len(job), _MAX_MESSAGE))
        self.send(job)

    def unmap(self) -> None:
        """No thread is in the memory that brought it here, if anything came."""
        if self._connection is not None:
            self.send(_UNMAP)

    def send(self, message: bytes) -> None:
        assert self._connection is not None
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass            # receive() tells
