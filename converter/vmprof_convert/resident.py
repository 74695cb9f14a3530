"""What was read of the whole process, in a line."""
from __future__ import annotations

from vmprof_convert.model import MAJOR_FAULTS, RESIDENT, Figure, Profile
from vmprof_convert.units import format_bytes, format_number


def readings(profile: Profile, kind: str) -> list[Figure]:
    """Those of one kind, by time."""
    return [figure for figure in profile.figures if figure.kind == kind]


def of_process(profile: Profile) -> list[str]:
    """Its resident memory, the peak and when; nothing if it was not read."""
    memory = readings(profile, RESIDENT)
    if not memory:
        return []
    # of equal ones, the first
    peak = max(memory, key=lambda figure: figure.value)
    line = ("resident memory: %s at the start, at most %s (at %.2f s), %s at the "
            "end" % (format_bytes(memory[0].value), format_bytes(peak.value),
                     peak.time / 1e9, format_bytes(memory[-1].value)))
    faults = readings(profile, MAJOR_FAULTS)
    count = faults[-1].value - faults[0].value if faults else 0
    if count > 0:
        line += "; %s had to be read from disk" % format_number(count, "page")
    return [line]
