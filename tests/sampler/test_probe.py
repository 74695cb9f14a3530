"""What the probe finds out about the objects of the PyPy that the tests run."""
from __future__ import annotations

from conftest import PyPy
from test_find import fields, remembered


def test_facts_are_found(stock_pypy: PyPy) -> None:
    """Those that incminimark's source says, where it says them; and an offset
    that differs from build to build."""
    layout = fields(remembered(stock_pypy).read_text())
    known = {name: int(layout[name][0]) for name in (
        "type_info_bits", "type_is_varsize", "type_length", "flag_visited",
        "flag_pinned", "forwarded")}
    assert known == {
        "type_info_bits": 0, "type_is_varsize": 0x10000, "type_length": 48,
        "flag_visited": 1 << 34, "flag_pinned": 1 << 41, "forwarded": -42}
    state = int(layout["gc_state"][0])
    assert 0 < state < int(layout["nursery_free"][0]) - int(layout["gc"][0])
    assert state % 8 == 0
