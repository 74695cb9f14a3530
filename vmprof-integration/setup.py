"""Build the native half of the hook engine.

The native half is a plain shared library, which cffi's dlopen() loads.  It does not
depend on the interpreter, so one wheel works for all interpreters whose glibc is recent
enough.  On other systems and processors, the library is not built, and the package
reports that when it is used.
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
#: processor of the library, which has a folder in native/machines
MACHINE = sysconfig.get_platform().rpartition("-")[2]
SUPPORTED = (sys.platform.startswith("linux")
             and MACHINE in ("x86_64", "aarch64") and sys.maxsize > 2**32)


#: options of link-time optimization, with which a sample takes 8 % fewer instructions
WHOLE = ["-flto", "-O2"]


class BuildLibrary(build_ext):
    """Build the shared libraries."""

    def get_ext_filename(self, fullname):
        """Return the file name, which is the same for all interpreters."""
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext):
        """Build a library, with link-time optimization if possible."""
        if not ext.name.endswith("._hook"):
            super().build_extension(ext)
            return
        plain = ext.extra_compile_args, ext.extra_link_args
        ext.extra_compile_args, ext.extra_link_args = (
            arguments + WHOLE for arguments in plain)
        try:
            super().build_extension(ext)
        except CCompilerError:
            # the linker cannot read the object files of this compiler
            ext.extra_compile_args, ext.extra_link_args = plain
            self.force = True
            super().build_extension(ext)

    def get_libraries(self, ext):
        """Return the libraries to link with, without libpython."""
        return ext.libraries


class BuildPackage(build_py):
    """Build the Python part of the package.

    The file vmprof_allocation.pth goes into site-packages (see startup.py).  The module
    _hook_abi, which cffi makes from hook.h, is stored next to library.py.  Without it,
    cffi would parse hook.h in each sampled program.
    """

    def run(self):
        """Build the package."""
        super().run()
        self.copy_file("vmprof_allocation.pth", self.build_lib)
        with open(NATIVE + "hook/hook.h") as file:
            header = "".join(line for line in file if line[0] != "#")
        ffi = FFI()
        ffi.cdef(header + "int pypy_main_startup(int argc, char *argv[]);")
        ffi.set_source("vmprof_allocation.engines.hook._hook_abi", None)
        ffi.emit_python_code(self.abi())

    def abi(self):
        """Return the path of the module _hook_abi."""
        return os.path.join(self.build_lib, "vmprof_allocation", "engines",
                            "hook", "_hook_abi.py")

    def get_outputs(self, include_bytecode=1):
        """Return the paths of all installed files."""
        return super().get_outputs(include_bytecode) + [
            os.path.join(self.build_lib, "vmprof_allocation.pth"), self.abi()]


def needed_glibc(library):
    """Return the newest glibc version of a library's symbols, or None without any."""
    with open(library, "rb") as file:
        return max(((int(major), int(minor)) for major, minor in re.findall(
            rb"\0GLIBC_(\d+)\.(\d+)", file.read())), default=None)


class AnyPythonWheel(bdist_wheel):
    """Build a wheel for all interpreters."""

    def get_tag(self):
        """Return the tags of the wheel.

        The platform tag contains the glibc version, because PyPI accepts no tag
        linux_MACHINE.
        """
        _, _, platform_tag = super().get_tag()
        versions = [version for version in map(needed_glibc, filter(
            os.path.exists,
            self.get_finalized_command("build_ext").get_outputs())) if version]
        if versions:
            platform_tag = "manylinux_%d_%d_%s" % (*max(versions), MACHINE)
        return "py3", "none", platform_tag if SUPPORTED else "any"


def library(name, *sources):
    """Return the description of a shared library with these sources in NATIVE."""
    return Extension(
        "vmprof_allocation." + name,
        sources=sorted(path for source in sources for path in glob(NATIVE + source)),
        depends=sorted(glob(NATIVE + "**/*.h", recursive=True)),
        include_dirs=[NATIVE, NATIVE + "hook", NATIVE + "shared"],
        extra_compile_args=["-std=gnu99", "-O2", "-Wall", "-Wextra",
                            "-fvisibility=hidden"],
        libraries=["dl", "m", "pthread"],
        # nodelete, because hooks jump into the library.  now, so that the library's own
        # calls of malloc() never lead to the library.
        extra_link_args=["-Wl,-z,nodelete", "-Wl,-z,now"])


LIBRARIES = [
    library("engines.hook._hook", "hook/*.c", "hook/*/*.c", "held/*.c",
            "machines/*.c", "machines/%s/*.c" % MACHINE,
            "malloc/*.c", "sampler/*.c", "shared/*.c"),
    # the native part of attach
    library("remote.entry._tracer", "attach/*.c", "attach/%s/*.c" % MACHINE)]

setup(
    ext_modules=LIBRARIES if SUPPORTED else [],
    cmdclass={"build_ext": BuildLibrary, "build_py": BuildPackage,
              "bdist_wheel": AnyPythonWheel},
)
