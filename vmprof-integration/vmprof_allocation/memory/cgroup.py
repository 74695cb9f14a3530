"""Read the memory limits of this process's cgroups, of version 1 and version 2."""
from __future__ import annotations

#: maximum of a limit in version 1; a larger number means no limit
_NO_LIMIT = 2**62
#: for version 2 and version 1: the root of the paths in /proc/self/cgroup, the file of
#: the limit, and the file of the usage
_BASES = ("/sys/fs/cgroup", "memory.max", "memory.current"), (
    "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")


class Limit:
    """The memory limit of a cgroup and its usage, in bytes."""

    __slots__ = ("files", "most", "used")

    def __init__(self, most: int, used: int, files: int) -> None:
        """Set the attributes.

        Args:
            most: the limit.
            used: usage of all processes in the cgroup.
            files: the part of `used` that the kernel can free: cached files.
        """
        self.most = most
        self.used = used
        self.files = files

    def left(self) -> int:
        """Return the bytes that the processes in the cgroup can still get."""
        return self.most - self.used + self.files


def tightest() -> Limit | None:
    """Return the limit with the least bytes left, or None if no limit is known.

    The function compares this process's cgroup and all cgroups that contain this one.
    """
    found: list[Limit] = []
    for line in read("/proc/self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number != "0" and "memory" not in kinds.split(","):
            continue
        base, most, used = _BASES[number != "0"]
        while True:
            limit, now = (read(base + path + "/" + name).strip()
                          for name in (most, used))
            if limit.isdigit() and now.isdigit() and int(limit) < _NO_LIMIT:
                found.append(Limit(int(limit), int(now), _of_files(base + path)))
            if path in ("/", ""):
                break
            path = path.rpartition("/")[0]
    return min(found, key=Limit.left, default=None)


def _of_files(group: str) -> int:
    return sum(int(value) for name, _, value in (
        line.partition(" ") for line in read(group + "/memory.stat").splitlines())
        if name in ("active_file", "inactive_file") and value.isdigit())


def read(path: str) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
