"""Check the form of the answers of a sampled process.

Any program with a handler for the command's signal may answer. So a command uses an
answer only if is_valid() is true.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from vmprof_allocation.remote.control import meeting

#: pattern of a number that fits 64 bits
_NUMBER = "[0-9]{1,18}"
_LIMIT = "([0-9]{1,9}(/s|ppm))?"
_PATH, _TEXT = ".+", ".*"
#: pattern of a run ID (settings/processes.py)
_RUN = "[0-9a-f]{16}"
_FACT = "[a-z_.]{1,40}=" + _NUMBER

#: the patterns of the fields of an answer, by the name of the request
_FIELDS: dict[str, tuple[str, ...]] = {
    meeting.STATUS: (_PATH, _NUMBER, _LIMIT, _NUMBER, _NUMBER, _NUMBER, _TEXT),
    meeting.START: (_PATH, _RUN), meeting.HOLD: (_PATH, _RUN),
    meeting.STOP: (_TEXT,), meeting.RATE: (), meeting.SNAPSHOT: (_PATH,),
    meeting.HELD: (_PATH,)}


def is_valid(request: str, answer: Sequence[str]) -> bool:
    """Return whether `answer` has the form of an answer to `request`."""
    if request == meeting.MEMORY:
        fields: Sequence[str] = [_FACT] * len(answer)
    elif request == meeting.STATUS and not answer:
        return True         # the process is not sampled
    else:
        fields = _FIELDS[request]
    return len(answer) == len(fields) and all(
        re.fullmatch(field, text, re.ASCII | re.DOTALL)
        for field, text in zip(fields, answer))
