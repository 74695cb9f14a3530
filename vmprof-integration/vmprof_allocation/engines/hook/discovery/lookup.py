"""Find the build profile of this build, from one of three sources.

The sources are another process, the cache, and a search.
"""
from __future__ import annotations

import os
import sys

from vmprof_allocation.engines.hook.discovery.layout import Layout, unpack
from vmprof_allocation.errors import NOT_KNOWN, Evidence, UnknownBuild

# import only necessary modules: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Called before a search, which takes a second or more, with the path of the cache file
#: or None.  The command line sets this.
searching: Callable[[str | None], None] | None = None
#: Environment variables that would start sampling in the process that searches.  This
#: process would then start a search, too.
_TRACES = "VMPROF_TRACEMALLOC", "PYTHONTRACEMALLOC"
#: The reason why the result of the last search() is not in the cache, or "".
not_kept = ""
#: The folder that contains this package, where the search starts.  In the program's
#: folder, a module might have the same name as a module that the search imports.
_FOLDER = os.path.abspath(__file__).rsplit(os.sep, 5)[0]


def known(evidence: Evidence, build_id: str, told: str) -> Layout | None:
    """Return the layout of this build from another process or from the cache.

    Args:
        evidence: gets a finding about the cache.
        build_id: the build-id of PyPy's library.
        told: the text of a layout from another process, or any other text.

    Returns:
        None if no layout of this build is known.
    """
    try:
        layout = Layout.parse(told)
        if layout.build_id == build_id:
            return layout
    except ValueError:
        pass            # no other process passed a layout
    from vmprof_allocation.engines.hook.discovery import cache
    file = cache.path(build_id)
    text = cache.load(file) if file is not None else None
    if text is not None:
        try:
            layout = Layout.parse(text)
            if layout.build_id == build_id:
                evidence.found("stored in", str(file))
                if not layout.references:
                    # a reason may be the environment of the search, such as an emulator
                    # or seccomp
                    evidence.found("references", "%s, so --retainers is not possible: "
                                   "when the search stored this result, it could not "
                                   "fork a process, or the references differed from "
                                   "the expected ones. Remove this file, and run "
                                   "doctor again for the reason" % NOT_KNOWN)
                return layout
        except ValueError:
            pass        # another version of this package wrote the file
    return None


def fill(layout: Layout, room: Any) -> bool:
    """Copy the names of a layout's types into the buffer `room`, which has their size.

    Returns:
        False if the file with the names is missing or invalid.
    """
    if layout.types:
        room[:] = unpack(layout.types)
        return True
    from vmprof_allocation.engines.hook.discovery import cache
    if layout.types_file and cache.fill(layout.types_file, room, layout.types_check):
        return True
    file = cache.path(layout.build_id)
    return file is not None and cache.fill(
        cache.types_path(file), room, layout.types_check)


def search(evidence: Evidence, library: str, build_id: str) -> Layout:
    """Run search.py in a process, which writes its result to the cache.

    Args:
        evidence: gets the findings of the search.
        library: the path of PyPy's library.
        build_id: its build-id.

    Raises:
        UnknownBuild: the search has failed.
    """
    import json
    import subprocess

    from vmprof_allocation.engines.hook.discovery import cache
    global not_kept
    file = cache.path(build_id)
    if searching is not None:
        searching(file)
    try:
        done = subprocess.run(
            [os.path.abspath(sys.executable), "-m",
             "vmprof_allocation.engines.hook.discovery.search", library,
             *([file] if file is not None else [])],
            stdin=subprocess.DEVNULL, capture_output=True, cwd=_FOLDER,
            env={name: value for name, value in os.environ.items()
                 if name not in _TRACES})
    except OSError as e:
        raise evidence.refuse("the search", str(e)) from e
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise evidence.refuse(
            "the search", "it ended with code %d: %s" % (
                done.returncode,
                done.stderr.decode("utf-8", "replace").strip()
                .rpartition("\n")[2])) from None
    evidence.findings += [tuple(finding) for finding in answer["findings"]]
    if answer["layout"] is None:
        raise UnknownBuild(answer["problem"], evidence.findings)
    not_kept = answer["not_kept"]
    layout = Layout.parse(answer["layout"])
    if layout.build_id != build_id:
        raise evidence.refuse("build-id", "the file contains another build, %s. Start "
                                          "PyPy again" % layout.build_id)
    return layout
