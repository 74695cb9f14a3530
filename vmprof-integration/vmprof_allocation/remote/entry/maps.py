"""Read the mappings of a process from /proc/PID/maps."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vmprof_allocation.errors import AllocationSamplingError


class Mapping(NamedTuple):
    """A mapping of a process's memory, from /proc/PID/maps."""

    start: int
    end: int
    permissions: str
    offset: int
        #: the mapped file, as device and inode
    file: tuple[str, int]
    path: str

    @property
    def name(self) -> str:
        """Name of the file without its folders."""
        return self.path.rpartition("/")[2]


def read(lines: Iterable[str]) -> Iterator[Mapping]:
    """Parse the lines of /proc/PID/maps."""
    for line in lines:
        fields = line.rstrip("\n").split(None, 5)
        start, _, end = fields[0].partition("-")
        yield Mapping(int(start, 16), int(end, 16), fields[1], int(fields[2], 16),
                      (fields[3], int(fields[4])),
                      fields[5] if len(fields) > 5 else "")


def of(pid: int | str) -> list[Mapping]:
    """Return the mappings of a process.

    Raises:
        OSError: the process does not exist, or its mappings are not accessible.
    """
    with open("/proc/%s/maps" % pid, encoding="utf-8",
              errors="surrogateescape") as file:
        return list(read(file))


def base(maps: list[Mapping], file: tuple[str, int]) -> int:
    """Return the address at which the beginning of a file is mapped.

    Raises:
        AllocationSamplingError: the beginning of the file is not mapped.
    """
    for mapping in maps:
        if mapping.file == file and mapping.offset == 0:
            return mapping.start
    raise AllocationSamplingError(
        "the file %d of device %s is not mapped from its beginning" % file[::-1])


def holding(maps: list[Mapping], address: int) -> Mapping:
    """Return the mapping that contains an address.

    Raises:
        AllocationSamplingError: no mapping contains the address.
    """
    for mapping in maps:
        if mapping.start <= address < mapping.end:
            return mapping
    raise AllocationSamplingError("nothing is mapped at 0x%x" % address)
