"""Run a program that uses memory in a certain way, and print its memory report.

    memory_worker.py PROGRAM

The experiment `memory` runs this script. While the program's objects are alive, the
script prints the output of `pypy-alloc memory PID --json`. The exit code is 3 if a
package of the program is not installed.
"""
from __future__ import annotations

import ctypes
import importlib
import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable
from typing import Any

import vmprof_allocation

_MEMORY = sys.executable, "-m", "vmprof_allocation", "memory"
_SHOP = """
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="x", ALLOWED_HOSTS=["*"])
kept = []
def index(request):
    kept.append({name: [name] * 20 for name in request.META})
    return JsonResponse({"visits": len(kept)})
urlpatterns = [path("", index)]
application = get_wsgi_application()
"""
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def _block(size: int) -> int:
    address: int = libc.malloc(size)
    ctypes.memset(address, 1, size)
    return address


def _module(name: str) -> Any:
    """Import a package that may be missing."""
    return importlib.import_module(name)


def cache() -> object:
    """Keep a large dict of strings."""
    return {number: "value %d" % number for number in range(1200000)}


def buffers() -> object:
    """Keep 200 blocks of 1 MiB from malloc."""
    return [_block(2**20) for _ in range(200)]


def fragmentation() -> object:
    """Free most of the blocks that eight threads have got from malloc."""
    kept: list[int] = []

    def work() -> None:
        blocks = [_block(20000) for _ in range(2000)]
        for number, block in enumerate(blocks):
            if number % 20:
                libc.free(block)
            else:
                kept.append(block)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return kept


def numpy() -> object:
    """Keep arrays, a large one without written pages among them."""
    np = _module("numpy")
    return np.ones(20 * 2**20), np.zeros(50 * 2**20), np.dot(
        np.ones((300, 300)), np.ones((300, 300)))


def sympy() -> object:
    """Keep symbolic expressions."""
    sp = _module("sympy")
    x, y = sp.symbols("x y")
    return [sp.expand((x + y + number) ** 12) for number in range(12)]


def lxml() -> object:
    """Keep XML trees of libxml2."""
    etree = _module("lxml.etree")
    text = "<a>%s</a>" % "".join('<b n="%d">text %d</b>' % (n, n) for n in range(20000))
    return [etree.parse(io.BytesIO(text.encode())) for _ in range(20)]


def sqlite() -> object:
    """Keep a database in memory, and rows of a query."""
    database = sqlite3.connect(":memory:")
    database.execute("create table t (a integer, b text)")
    database.executemany("insert into t values (?, ?)", (
        (number, "row %d " % number * 10) for number in range(300000)))
    return database, database.execute("select * from t limit 100000").fetchall()


def json_() -> object:
    """Keep a JSON text and its objects."""
    text = json.dumps([{"id": n, "name": "name %d" % n, "tags": ["a", "b", str(n)]}
                       for n in range(100000)])
    return text, json.loads(text)


def zlib_() -> object:
    """Keep compressed data and compressors."""
    data = os.urandom(2**20) * 20
    return [zlib.compress(data, 1) for _ in range(5)], [
        zlib.compressobj() for _ in range(50)]


def flask() -> object:
    """Answer requests with Flask, and keep their headers."""
    fl = _module("flask")
    app = fl.Flask("shop")
    kept: list[object] = []

    def index() -> Any:
        kept.append(fl.request.headers)
        return fl.jsonify(visits=len(kept))

    app.add_url_rule("/", view_func=index)
    client = app.test_client()
    for _ in range(3000):
        client.get("/")
    return app, kept


def tornado() -> object:
    """Answer requests over loopback with tornado, and keep them."""
    client, loop, web = map(_module, ("tornado.httpclient", "tornado.ioloop",
                                      "tornado.web"))
    kept: list[object] = []

    def get(handler: Any) -> None:
        kept.append(handler.request)
        handler.write("x" * 10000)

    async def ask(url: str) -> None:
        fetcher = client.AsyncHTTPClient()
        for _ in range(1500):
            await fetcher.fetch(url)

    index = type("Index", (web.RequestHandler,), {"get": get})
    server = web.Application([("/", index)]).listen(0, "127.0.0.1")
    port = next(iter(server._sockets.values())).getsockname()[1]
    loop.IOLoop.current().run_sync(lambda: ask("http://127.0.0.1:%d/" % port))
    return server, kept


def gunicorn() -> Any:
    """Serve a Django application with gunicorn.

    Returns:
        The memory report of gunicorn's worker process.
    """
    for name in "django", "gunicorn":
        _module(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "shop.py"), "w", encoding="ascii") as file:
            file.write(_SHOP)
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--preload", "-b", address,
             "shop:application"], cwd=folder, stderr=subprocess.DEVNULL,
            env={**os.environ, "VMPROF_CONTROL": "1"})
        try:
            _visit("http://%s/" % address, 3000)
            out = subprocess.run([*_MEMORY, str(server.pid), "--children", "--json"],
                                 check=True, stdout=subprocess.PIPE).stdout
        finally:
            server.terminate()
            server.wait()
    return json.loads(out.splitlines()[-1])


def _visit(url: str, times: int) -> None:
    """Request a URL several times, and wait up to 30 s for the server to start."""
    deadline = time.monotonic() + 30
    while times:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                answer.read()
            times -= 1
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


PROGRAMS: dict[str, Callable[[], object]] = {
    "cache": cache, "buffers": buffers, "fragmentation": fragmentation,
    "numpy": numpy, "sympy": sympy, "lxml": lxml, "sqlite": sqlite, "json": json_,
    "zlib": zlib_, "flask": flask, "tornado": tornado}


def main(name: str) -> int:
    """Run the program and print its memory report.

    Returns:
        The exit code.
    """
    try:
        if name == "gunicorn":
            found = gunicorn()
        else:
            kept = PROGRAMS[name]()
            vmprof_allocation.prepare()
            found = json.loads(subprocess.run(
                [*_MEMORY, str(os.getpid()), "--json"], check=True,
                stdout=subprocess.PIPE).stdout)
            del kept
    except ModuleNotFoundError as e:
        print(e, file=sys.stderr)
        return 3
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
