"""What knows the instructions of machines, for search.py, which asks about code.

Which machine it is, the file says, and not where the search runs.  Only what knows that
one is loaded: capstone may not be there.
"""
from __future__ import annotations

from vmprof_allocation.engines.hook.discovery.machines.machine import Machine, Text


def machine(e_machine: str, text: Text) -> Machine:
    """The code of a library; `e_machine` as its ELF header has it.  Raises ValueError
    if that machine is not known."""
    if e_machine == "EM_X86_64":
        from vmprof_allocation.engines.hook.discovery.machines import x86_64
        return x86_64.X8664(text)
    if e_machine == "EM_AARCH64":
        from vmprof_allocation.engines.hook.discovery.machines import aarch64
        return aarch64.AArch64(text)
    raise ValueError("it is for another machine (%s) than x86-64 and AArch64"
                     % e_machine)
