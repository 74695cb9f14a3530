"""How much memory the cgroups of this process may take, by the kernel's files: of
version 2, and of version 1."""
from __future__ import annotations

#: larger ones mean that there is none (version 1)
_NO_LIMIT = 2**62
#: below where the paths of /proc/self/cgroup are: of both versions
_BASES = ("/sys/fs/cgroup", "memory.max", "memory.current"), (
    "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")


class Limit:
    """In bytes."""

    __slots__ = ("files", "most", "used")

    def __init__(self, most: int, used: int, files: int) -> None:
        self.most = most
        #: by all processes in it
        self.used = used
        #: of `used`, what it gives back when it is needed: of files
        self.files = files

    def left(self) -> int:
        return self.most - self.used + self.files


def tightest() -> Limit | None:
    """Of this process's cgroup, and those around it, the one that has the least left;
    None: there is no limit, or none that is known."""
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
    """Empty: it can't be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
