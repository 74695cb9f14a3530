"""Build the native half of the hook engine.

It is a plain shared library, loaded with cffi's dlopen: it knows nothing of
the interpreter that loads it, so one build, and one wheel, serves them all
that have a glibc that is not older than what it needs.
Where it can't work (another system, another processor) it is not built, and
the package says so when it is used.
"""
import os
import re
import sys
import sysconfig
from glob import glob

from cffi import FFI
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CCompilerError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:         # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel

NATIVE = "vmprof_allocation/native/"
#: that it is built for, which has a folder in native/machines
MACHINE = sysconfig.get_platform().rpartition("-")[2]
SUPPORTED = (sys.platform.startswith("linux")
             and MACHINE in ("x86_64", "aarch64") and sys.maxsize > 2**32)


#: a sample takes 8 % fewer instructions
WHOLE = ["-flto", "-O2"]


class BuildLibrary(build_ext):
    def get_ext_filename(self, fullname):
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext):
        if not ext.name.endswith("._hook"):
            super().build_extension(ext)
            return
        plain = ext.extra_compile_args, ext.extra_link_args
        ext.extra_compile_args, ext.extra_link_args = (
            arguments + WHOLE for arguments in plain)
        try:
            super().build_extension(ext)
        except CCompilerError:
            # not every linker understands every compiler
            ext.extra_compile_args, ext.extra_link_args = plain
            self.force = True
            super().build_extension(ext)

    def get_libraries(self, ext):
        return ext.libraries        # no libpython


class BuildPackage(build_py):
    """Puts the .pth file, which startup.py explains, into site-packages, and
    beside library.py what cffi makes of hook.h: cffi would otherwise have to
    parse it in the program that is to be sampled."""

    def run(self):
        super().run()
        self.copy_file("vmprof_allocation.pth", self.build_lib)
        with open(NATIVE + "hook/hook.h") as file:
            header = "".join(line for line in file if line[0] != "#")
        ffi = FFI()
        ffi.cdef(header + "int pypy_main_startup(int argc, char *argv[]);")
        ffi.set_source("vmprof_allocation.engines.hook._hook_abi", None)
        ffi.emit_python_code(self.abi())

    def abi(self):
        return os.path.join(self.build_lib, "vmprof_allocation", "engines",
                            "hook", "_hook_abi.py")

    def get_outputs(self, include_bytecode=1):
        return super().get_outputs(include_bytecode) + [
            os.path.join(self.build_lib, "vmprof_allocation.pth"), self.abi()]


def needed_glibc(library):
    """The newest version of glibc whose symbols a library has, if any."""
    with open(library, "rb") as file:
        return max(((int(major), int(minor)) for major, minor in re.findall(
            rb"\0GLIBC_(\d+)\.(\d+)", file.read())), default=None)


class AnyPythonWheel(bdist_wheel):
    def get_tag(self):
        """PyPI takes what says which glibc it needs, and no linux_MACHINE."""
        _, _, platform_tag = super().get_tag()
        versions = [version for version in map(needed_glibc, filter(
            os.path.exists,
            self.get_finalized_command("build_ext").get_outputs())) if version]
        if versions:
            platform_tag = "manylinux_%d_%d_%s" % (*max(versions), MACHINE)
        return "py3", "none", platform_tag if SUPPORTED else "any"


def library(name, *sources):
    return Extension(
        "vmprof_allocation." + name,
        sources=sorted(path for source in sources for path in glob(NATIVE + source)),
        depends=sorted(glob(NATIVE + "**/*.h", recursive=True)),
        include_dirs=[NATIVE, NATIVE + "hook", NATIVE + "shared"],
        extra_compile_args=["-std=gnu99", "-O2", "-Wall", "-Wextra",
                            "-fvisibility=hidden"],
        libraries=["dl", "m", "pthread"],
        # the hooks lead into it: it must stay, whoever forgets the handle
        # ... and its own calls of malloc() never lead to itself
        extra_link_args=["-Wl,-z,nodelete", "-Wl,-z,now"])


LIBRARIES = [
    library("engines.hook._hook", "hook/*.c", "hook/*/*.c", "held/*.c",
            "machines/*.c", "machines/%s/*.c" % MACHINE,
            "malloc/*.c", "sampler/*.c", "shared/*.c"),
    # how one gets into another process
    library("remote.entry._tracer", "attach/*.c", "attach/%s/*.c" % MACHINE)]

setup(
    ext_modules=LIBRARIES if SUPPORTED else [],
    cmdclass={"build_ext": BuildLibrary, "build_py": BuildPackage,
              "bdist_wheel": AnyPythonWheel},
)
