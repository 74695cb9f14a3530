"""A made profile of a program that calls libraries, imports modules, and recurses."""
from __future__ import annotations

from pathlib import Path

from made_profiles import Log

APP = "/srv/shop/app.py"
VIEWS = "/srv/shop/views.py"
PACKAGES = "/srv/env/lib/pypy3.9/site-packages/"
LIBRARY = "/usr/lib/pypy3.9/"
IMPORTLIB = "<frozen importlib._bootstrap>"

#: name, line and file of each function, by its word in `CALLS`
FUNCTIONS = {
    "main": ("<module>", 1, APP), "serve": ("serve", 10, APP),
    "index": ("index", 5, VIEWS), "views": ("<module>", 1, VIEWS),
    "walk": ("walk", 20, VIEWS), "render": ("render", 7, PACKAGES + "jinja/core.py"),
    "save": ("render", 9, PACKAGES + "jinja/loaders.py"),
    "dumps": ("dumps", 3, LIBRARY + "json/__init__.py"),
    "import": ("_find_and_load", 2, IMPORTLIB),
    "jinja": ("<module>", 1, PACKAGES + "jinja/__init__.py"),
    "thread": ("_bootstrap", 4, LIBRARY + "threading.py"),
    "worker": ("run", 6, PACKAGES + "pool/worker.py"),
}
#: bytes that each stack allocates; a stack is words, the outermost function first
CALLS = {
    "main serve index": 1000,
    "main serve index render": 2000,
    "main serve index render dumps": 4000,
    "main serve index save dumps": 300,
    "main import jinja": 700,
    "main import views": 90,
    "main import views import jinja": 60,
    "main serve walk": 10,
    "main serve walk walk walk": 20,
    "main serve walk render walk": 40,
    "thread worker": 5,
}
SECOND = 10**9


def log(**settings: object) -> Log:
    """Return a profile of CALLS with exact numbers, because every byte is sampled.

    Each stack allocates one second after the previous one. The last stack is in another
    thread.
    """
    made = Log()
    made.settings(interval=1, **settings)
    addresses = {word: made.function(*place) for word, place in FUNCTIONS.items()}
    for number, (stack, size) in enumerate(CALLS.items()):
        made.allocation([addresses[word] for word in stack.split()], size=size,
                        interval=1, time=number * SECOND,
                        thread=2000 if "thread" in stack else 1000)
    made.flush()
    return made


def write(folder: Path) -> Path:
    """Write the profile of log() to a folder, and return the file's path."""
    path = folder / "calls.vmprof"
    path.write_bytes(log().data())
    return path
