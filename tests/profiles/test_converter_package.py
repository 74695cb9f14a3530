"""Tests that processes import only the parts of the converter that they need."""
from __future__ import annotations

from conftest import PyPy

LOADED = """
    import sys
    def loaded():
        return [m for m in sys.modules if m.startswith("vmprof_convert")]
"""


def test_sampled_program_does_not_import_the_converter(pypy: PyPy) -> None:
    run = pypy.sample(LOADED + """
    print(loaded(), [m for m in sys.modules if "vmprof_allocation" in m] != [])
    """, "1k")
    assert run.out == "[] True\n"


def test_session_does_not_import_the_converter(pypy: PyPy) -> None:
    run = pypy.run(LOADED + """
    import vmprof_allocation
    with vmprof_allocation.sample("out.vmprof", "auto"):
        print(loaded())
    print(loaded())
    """)
    assert (run.out, run.err) == ("[]\n[]\n", "")


def test_report_imports_only_the_modules_that_it_needs(pypy: PyPy) -> None:
    """The import of the other modules costs more than the report itself."""
    run = pypy.sample("list(map(str, range(10000)))", "1k")
    run = pypy.run("""
        import sys
        sys.argv = ["vmprof_allocation", "report", "out.vmprof"]
        from vmprof_allocation import __main__
        __main__.main()
        print(sorted({"rich.progress", "json", "pygments", "gzip", "http", "webbrowser",
                      "tempfile", "numpy", "vmprof", "vmprof_convert.cli.output",
                      "vmprof_convert.writers.firefox"} & set(sys.modules)))
    """)
    assert run.out.startswith("allocated in") and run.err == ""
    assert run.out.splitlines()[-1] == "[]"
