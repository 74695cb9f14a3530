"""Answer the requests of a command in the program's process."""
from __future__ import annotations

import _socket
import os

from vmprof_allocation.critical.descriptors import move_up
from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control.meeting import (
    BETWEEN,
    DONE,
    HELD,
    HOLD,
    MAX_MESSAGE,
    MEMORY,
    RATE,
    REFUSED,
    SNAPSHOT,
    START,
    STATUS,
    STOP,
    is_safe,
    socket_of,
)
from vmprof_allocation.remote.peers import pid_and_user
from vmprof_allocation.session import session as sessions
from vmprof_allocation.session.profile_file import file_id
from vmprof_allocation.session.session import Session, current
from vmprof_allocation.settings.processes import Processes, make_own
from vmprof_allocation.settings.settings import Settings

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: seconds to wait for a command that has just sent a signal
_SECONDS = 10.0
#: connections to commands, with device and inode of their descriptors
_peers: dict[Any, tuple[int, int] | None] = {}
#: the session that ends with its connection, or None
_held: Session | None = None


def answer(path: str = "") -> None:
    """Connect to a command that waits, and answer its requests until it disconnects.

    Errors are not reported here, because the command reports that it gets no answer.

    Args:
        path: path of the socket; empty for the default path.
    """
    try:
        _answer(path)
    except Exception:
        pass


def _answer(path: str) -> None:
    uid = os.geteuid()
    path = path or socket_of(os.getpid(), uid)
    if not is_safe(path, uid):
        return
    found = _socket.socket(_socket.AF_UNIX,
                           _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    # with a high number, the program's own descriptors get their usual numbers
    peer = _socket.socket(fileno=move_up(found.detach()))
    _peers[peer] = file_id(peer.fileno())
    try:
        peer.settimeout(_SECONDS)
        peer.connect(path)
        if pid_and_user(peer)[1] in (0, uid):
            _converse(peer)
    finally:
        _close(peer)


def _close(peer: Any) -> None:
    """Close a connection, unless the program has closed its descriptor."""
    identity = _peers.pop(peer, None)
    fd = peer.detach()
    if fd >= 0 and file_id(fd) == identity:
        os.close(fd)


def _forget() -> None:
    """Close the connections that a forked child inherited from its parent."""
    global _held
    _held = None
    for peer in [*_peers]:
        _close(peer)


os.register_at_fork(after_in_child=_forget)


def _converse(peer: Any) -> None:
    """Answer the requests from a connection until the command disconnects."""
    global _held
    pid = os.getpid()
    held: Session | None = None
    try:
        while request := peer.recv(MAX_MESSAGE).decode("utf-8", "surrogateescape"):
            words = request.split(BETWEEN)
            if words[0] == HOLD:
                peer.settimeout(float(words.pop(1)))
            if words[0] == HELD:
                # Session.retainers() waits for another process, and delays forks itself
                # where necessary
                answer = _answer_to(words, held)
            else:
                with Undivided():
                    answer = _answer_to(words, held)
                    if words[0] == HOLD and answer is not None and answer[0] == DONE:
                        _held = held = current()
            if answer is None:
                return              # the closed connection shows that the process ends
            peer.send(BETWEEN.join(answer).encode("utf-8", "surrogateescape"))
    except OSError:
            pass            # the command has ended, or has stopped
    finally:
        if held is not None and pid == os.getpid():
            if _held is held:
                _held = None
            held.stop()


def _answer_to(words: list[str], held: Session | None) -> list[str] | None:
    """Return the answer to a request, or None if the process ends.

    Args:
        words: the request.
        held: the session that ends with this connection, or None.
    """
    on = current()
    if words[0] not in (STATUS, MEMORY) and on is not None and on is _held is not held:
        return [REFUSED, "another command (attach or live) samples the process. End "
                         "that command first"]
    answer = _done(words) if held in (None, on) else [REFUSED]
    # the session may also have ended while the request was answered
    if answer[0] == REFUSED and held is not None and current() is not held:
        return (None if sessions.is_ending
                else [REFUSED, "another command has ended the sampling"])
    return answer


def _done(request: list[str]) -> list[str]:
    try:
        return [DONE, *_DO[request[0]](*request[1:])]
    except AllocationSamplingError as e:
        return [REFUSED, str(e)]
    except Exception as e:
        return [REFUSED, "the request failed: %r" % e]


def _needed() -> Session:
    session = current()
    if session is None:
        raise AllocationSamplingError("allocation sampling is not on. Start it first")
    return session


def _status() -> list[str]:
    session = current()
    if session is None:
        return []
    counted = session.statistics()
    interval, limit = session.pace
    return [session.where, str(interval), str(limit or ""), str(counted.samples),
            str(counted.allocated), str(counted.collections), _problem(session)]


def _problem(session: Session) -> str:
    """Return the reason why the profile gets no more records, or ""."""
    try:
        session.check()
    except AllocationSamplingError as e:
        return str(e)
    return ""


def _start(output: str, knowledge: str, text: str, run: str, parent: str) -> list[str]:
    on = current()
    if on is not None:
        raise AllocationSamplingError(
            "allocation sampling is already on, and writes to %r. Read this profile "
            "with `report`, or stop the sampling first" % on.where)
    settings = Settings.parse(text)
    settings.last_snapshot = True
    if run:
        session = _as_child(settings, Processes(output, run, int(parent)), knowledge)
    else:
        session = Session(settings, output)
        session.start(choose(knowledge, hook=settings.needs_hook))
    return [session.path, session.run]


def _as_child(settings: Settings, processes: Processes, knowledge: str) -> Session:
    """Start to sample this process as a child in an existing run.

    The same command has started to sample the parent before.
    """
    path = make_own(processes)
    if path is None:
        raise AllocationSamplingError(
            "cannot write a profile next to %r" % processes.first)
    session = Session(settings, path, processes)
    try:
        session.start(choose(knowledge, hook=settings.needs_hook))
    except BaseException:
        os.unlink(path)
        raise
    return session


def _stop() -> list[str]:
    session = _needed()
    path, problem = session.where, _problem(session)
    was_there = os.path.exists(path)        # a pipe may not be visible to this process
    session.stop()
    if problem:
        raise AllocationSamplingError(problem)
    # a child without samples has removed its profile
    return ["" if was_there and not os.path.exists(path) else path]


def _rate(interval: str) -> list[str]:
    _needed().set_interval(int(interval))
    return []


def _snapshot(output: str) -> list[str]:
    session = _needed()
    path = session.where
    session.rotate(output)
    return [path]


def _look() -> list[str]:
    return [_needed().retainers()]


def _memory(state: str) -> list[str]:
    from vmprof_allocation.memory import facts
    return ["%s=%d" % fact for fact in facts.read(state).items()]


_DO: dict[str, Callable[..., list[str]]] = {
    STATUS: _status, START: _start, HOLD: _start, STOP: _stop, RATE: _rate,
    SNAPSHOT: _snapshot, HELD: _look, MEMORY: _memory}
