"""Names with special characters of terminals, HTML, Markdown or other formats.

Writers must escape these names.
"""
from __future__ import annotations

from made_profiles import Log

HOSTILE = [
    "\x1b[2J\x1b]0;title\x07", "a\rb\nc", "\u202egnp.exe", "\u2066x\u2069",
    "\u200b", "[bold red]x[/]", "[link=http://e.example]x", ":smile:",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&lt;b&gt;",
    "[x](http://e.example)", "![x](http://e.example/y.png)", "http://e.example",
    "www.e.example", "a@e.example", "@somebody", "#1", "a|b", "a\\|b", "`", "``|``",
    "a`b", "`a", "|", "\\", "**x**", "__x__", "~~x~~", "-", "- x", "1. x", "# x",
    "> x", "---", "    x", " ", "", "\"", "'", "{{x}}", "$(x)", "%s%n", "\u65e5\u672c",
    "e\u0301" * 20, "\U0001f40d" * 30, "x" * 5000, "\x00", "\x7f\x9b31m", "\ufeff",
    "\u0000</td>", "</code>", "a;b 5", "<!--", "-->", "~",
]


def log() -> Log:
    """Return a profile whose functions, files, types and settings have these names."""
    log = Log()
    log.settings(facts="types,lifetimes", ended="\x1b[2J\u202e <b>x</b> `a`|b [c](d)")
    types = [log.type(name) for name in HOSTILE]
    for number, name in enumerate(HOSTILE):
        # replace colons, at which a function's name in a profile ends
        f = log.function(name.replace(":", ";"), 7, "/srv/%s/%s.py" % (name, name))
        log.allocation([f, log.function("g%d" % number, 1, name)],
                       size=10_000 - number)
    log.collection(5)
    for number, type_ in enumerate(types):
        log.young(number + 1, 1, type_)
    log.mark(7, HOSTILE[0])
    return log
