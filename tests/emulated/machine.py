"""Run a command in a whole Debian system for arm64 with its own kernel.

    machine.py RELEASE FOLDER

The emulator of single programs lacks system calls such as ptrace(). This program runs
FOLDER/command with a shell in the system, and prints its output. The command finds the
other files of FOLDER in its current folder. The whole system is in memory, and is
discarded at the end. It needs .build/arm64/RELEASE (see arm64.py) and Debian's
qemu-system-arm.
"""
from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import arm64
from enter import PROCESSOR

EMULATOR = "qemu-system-aarch64"
#: name of the kernel's file in the folder of the release
KERNEL = "vmlinuz"
#: package of the smallest kernel, which suffices because the console is the only device
PACKAGE = "linux-image-cloud-arm64"
#: parts of Debian's root that no program needs
LEFT_OUT = ("proc", "sys", "dev", "tmp", "work", "boot", "usr/share/doc",
            "usr/share/man", "usr/share/locale", "var/cache")
CACHE = arm64.PROJECT / ".build/arm64/cache"
#: text that follows the command's output, and precedes the command's exit code
END = "the command's code:"
INIT = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root XDG_CACHE_HOME="%s"
export PYPY_GC_NURSERY=4M
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm
mount -t tmpfs none /tmp
exec >/dev/ttyAMA0 2>&1 </dev/null
cd /tried
sh ./command
echo "%s $?"
echo o >/proc/sysrq-trigger
sleep 60
"""


def make_kernel(release: str, kernel: Path) -> None:
    """Copy the kernel out of a Debian package to the file `kernel`."""
    with tempfile.TemporaryDirectory(dir=kernel.parent) as folder:
        root = Path(folder, "root")
        arm64.make_root(release, root, arm64.PACKAGES + "," + PACKAGE)
        (found,) = root.glob("boot/vmlinuz-*")
        shutil.copy(found, kernel)


def write_entry(file: BinaryIO, name: str, mode: int, data: bytes = b"") -> None:
    """Write an entry of a cpio archive. The owner of the entry is root.

    The kernel's documentation describes the format ("initramfs buffer format").
    """
    ended = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(ended), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields)
    for part in head + ended, data:
        file.write(part + bytes(-len(part) % 4))


def walk(folder: Path, left_out: set[Path]) -> Iterator[Path]:
    """Yield all paths below a folder, except those in `left_out` and below."""
    for path in sorted(folder.iterdir()):
        if path not in left_out:
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from walk(path, left_out)


def write_tree(file: BinaryIO, folder: Path, name: str,
               left_out: tuple[str, ...] = ()) -> None:
    """Write all files below a folder to the archive; `name` precedes the relative
    paths.
    """
    for path in walk(folder, {folder / below for below in left_out}):
        mode = path.lstat().st_mode
        data = (str(path.readlink()).encode() if stat.S_ISLNK(mode) else
                path.read_bytes() if stat.S_ISREG(mode) else b"")
        write_entry(file, name + str(path.relative_to(folder)), mode, data)


def write_system(file: BinaryIO, root: Path, site: Path, folder: Path) -> None:
    """Write the system, our packages and the command's folder as an initramfs."""
    write_tree(file, root, "", LEFT_OUT)
    for empty in "proc", "sys", "dev", "tmp", "tried":
        write_entry(file, empty, 0o40755)
    for shared in site, CACHE:
        # in the emulated system, the folder has the same path as on this machine
        name = str(shared).lstrip("/")
        for parent in reversed(Path(name).parents[:-1]):
            write_entry(file, str(parent), 0o40755)
        write_entry(file, name, 0o40755)
        if shared.exists():
            write_tree(file, shared, name + "/")
    write_tree(file, folder, "tried/")
    write_entry(file, "init", 0o100755, (INIT % (CACHE, END)).encode())
    write_entry(file, "TRAILER!!!", 0)


def run(release: str, folder: Path, seconds: float) -> tuple[str, int]:
    """Run FOLDER/command, and return its output and its exit code.

    Raises OSError or subprocess.SubprocessError if the system did not run, or did not
    end after `seconds`.
    """
    there = arm64.PROJECT / ".build/arm64" / release
    if not (there / KERNEL).exists():
        make_kernel(release, there / KERNEL)
    with tempfile.TemporaryDirectory(dir=there) as made:
        system = Path(made, "system.cpio")
        with open(system, "wb") as file:
            write_system(file, there / "root", there / "site", folder)
        done = subprocess.run(
            [EMULATOR, "-M", "virt", "-cpu", PROCESSOR, "-smp", "2", "-m", "3G",
             "-accel", "tcg,thread=multi", "-display", "none", "-nodefaults",
             "-no-reboot", "-serial", "stdio", "-kernel", str(there / KERNEL),
             "-initrd", str(system), "-append", "console=ttyAMA0 quiet panic=-1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
            timeout=seconds)
    said, found, code = done.stdout.replace("\r", "").rpartition(END)
    if not found:
        raise subprocess.SubprocessError("the system ended early: %s" % done.stdout)
    return said, int(code.split()[0])


if __name__ == "__main__":
    said, code = run(sys.argv[1], Path(sys.argv[2]), 3600)
    sys.stdout.write(said)
    sys.exit(code)
