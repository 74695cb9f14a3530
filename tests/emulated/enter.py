"""Run a program of another machine, in a Debian system of that machine.

    enter.py ROOT COMMAND...

COMMAND runs in the system at ROOT, and in the current folder. The system has this
machine's /tmp and the files of the project. An emulator runs COMMAND and its children.
The emulator is registered only in a user namespace, which Linux allows since 6.7.
"""
from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
EMULATOR = "/usr/bin/qemu-aarch64-static"
#: flags of unshare() and mount(), from linux/sched.h and sys/mount.h
NEW_USERS, NEW_MOUNTS = 0x10000000, 0x20000
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000
#: first bytes of an AArch64 program (ELF header), and the mask of the significant bits
HEAD = "7f454c46020101000000000000000000" "0200b700"
MASK = "ffffffffffffff00ffffffffffffffff" "feffffff"
#: flags of binfmt_misc. F opens the emulator now, so that it need not be in ROOT. P
#: passes argv[0] to the emulator
FLAGS = "FP"
#: value of QEMU_CPU: a processor with guarded pages and signed return addresses. The
#: hardware's algorithm for signatures would be slow in the emulator
PROCESSOR = "max,pauth-impdef=on"

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError with errno if the result of a libc function is not 0."""
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    check(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None,
                     flags, None), "mounting %s on %s" % (source, target))


def become_root_of_a_namespace() -> None:
    """Enter a new user namespace and mount namespace as root."""
    users = "0 %d 1" % os.getuid(), "0 %d 1" % os.getgid()
    check(libc.unshare(NEW_USERS | NEW_MOUNTS), "a namespace of users")
    Path("/proc/self/setgroups").write_text("deny")
    for name, text in zip(("uid_map", "gid_map"), users):
        Path("/proc/self", name).write_text(text)


def escaped(digits: str) -> str:
    return "".join("\\x" + digits[i:i + 2] for i in range(0, len(digits), 2))


def register_emulator() -> None:
    """Let the kernel run programs of the other machine in the emulator."""
    mount("binfmt_misc", "/proc/sys/fs/binfmt_misc", "binfmt_misc", 0)
    Path("/proc/sys/fs/binfmt_misc/register").write_text(":".join((
        "", "emulated", "M", "", escaped(HEAD), escaped(MASK), EMULATOR, FLAGS)))


def enter(root: Path) -> None:
    """Make `root` the root folder of this process, with shared folders of this machine.
    """
    folder = os.getcwd()
    become_root_of_a_namespace()
    mount("none", "/", None, RECURSIVE | PRIVATE)
    register_emulator()
    for shared in ("/proc", "/dev", "/tmp", str(PROJECT)):
        below = str(root) + shared
        os.makedirs(below, exist_ok=True)
        mount(shared, below, None, BIND | RECURSIVE)
    os.chroot(root)
    os.chdir(folder)


def main() -> None:
    root, command = Path(sys.argv[1]), sys.argv[2:]
    try:
        enter(root)
    except OSError as error:
        sys.exit("enter.py: %s: programs of another machine can't be run here" % error)
    os.environ["QEMU_CPU"] = PROCESSOR
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
