"""The machines whose instructions search.py can analyse.

The ELF file names the machine whose code is analysed; the search may run on another
machine.  Only the module for the named machine is imported, because x86_64.py needs
capstone, which may not be installed.
"""
from __future__ import annotations

from vmprof_allocation.engines.hook.discovery.machines.machine import Machine, Text


def machine(e_machine: str, text: Text) -> Machine:
    """Return the analysis of a library's code.

    Args:
        e_machine: the machine in the ELF header.
        text: the code.

    Raises:
        ValueError: the machine is unknown.
    """
    if e_machine == "EM_X86_64":
        from vmprof_allocation.engines.hook.discovery.machines import x86_64
        return x86_64.X8664(text)
    if e_machine == "EM_AARCH64":
        from vmprof_allocation.engines.hook.discovery.machines import aarch64
        return aarch64.AArch64(text)
    raise ValueError("it is for the processor type %s. The sampler supports x86-64 and "
                     "AArch64"
                     % e_machine)
