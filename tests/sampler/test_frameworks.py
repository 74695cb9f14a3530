"""Labels by route, with the real Django, Flask and Starlette."""
from __future__ import annotations

from conftest import PyPy
from vmprof_convert.profile.model import Profile

#: size in bytes of the items of each list that a route allocates
SIZE = 4000
HEAD = """
    import vmprof_allocation
    from vmprof_allocation import frameworks
    def make(count):
        return [[None] * 500 for _ in range(count)] and "done"
"""


def made(profile: Profile) -> dict[tuple[str, ...], int]:
    """Return the number of sampled lists of SIZE bytes for each endpoint and method."""
    found: dict[tuple[str, ...], int] = {}
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        if SIZE < size < SIZE + 100:
            labels = profile.labels_of(stack)
            key = tuple(labels.get(name, "") for name in ("endpoint", "method"))
            found[key] = found.get(key, 0) + 1
    # the five lists outside of all requests; the framework may allocate a few more
    # objects of this size
    assert found.pop(("", ""), 0) >= 5
    return found


def sampled(pypy: PyPy, program: str) -> Profile:
    run = pypy.run(HEAD + program)
    assert (run.code, run.err) == (0, "")
    return run.profile()


def test_django(stock_pypy: PyPy) -> None:
    profile = sampled(stock_pypy, """
    from django.conf import settings
    settings.configure(
        SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__,
        MIDDLEWARE=["vmprof_allocation.frameworks.DjangoLabels"])
    import django
    from django.http import HttpResponse
    from django.test import Client
    from django.urls import path, re_path
    def user(request, number):
        return HttpResponse(make(10))
    def old(request):
        return HttpResponse(make(20))
    def fails(request):
        make(30)
        raise ValueError
    urlpatterns = [path("users/<int:number>", user), re_path("^old/$", old),
                   path("fails", fails)]
    django.setup()
    client = Client(raise_request_exception=False)
    client.get("/nowhere")
    vmprof_allocation.start("out.vmprof", 1)
    import logging
    logging.disable(logging.CRITICAL)
    for number in range(3):
        assert client.get("/users/%d" % number).status_code == 200
    assert client.post("/old/").status_code == 200
    assert client.get("/nowhere").status_code == 404
    assert client.get("/fails").status_code == 500
    make(5)
    """)
    assert made(profile) == {
        ("/users/<int:number>", "GET"): 30, ("/old/$", "POST"): 20,
        ("/fails", "GET"): 30}


def test_flask(stock_pypy: PyPy) -> None:
    profile = sampled(stock_pypy, """
    import flask
    app = flask.Flask(__name__)
    frameworks.label_flask(app)
    @app.route("/users/<int:number>", methods=["GET", "POST"])
    def user(number):
        return make(10)
    @app.route("/fails")
    def fails():
        make(20)
        raise ValueError
    @app.errorhandler(404)
    def lost(error):
        return make(7), 404
    app.logger.disabled = True
    client = app.test_client()
    vmprof_allocation.start("out.vmprof", 1)
    for number in range(3):
        assert client.get("/users/%d" % number).status_code == 200
    assert client.post("/users/1").status_code == 200
    assert client.get("/nowhere").status_code == 404
    assert client.get("/fails").status_code == 500
    make(5)
    """)
    assert made(profile) == {
        ("/users/<int:number>", "GET"): 30, ("/users/<int:number>", "POST"): 10,
        ("/fails", "GET"): 20, ("[no route]", "GET"): 7}


def test_starlette(stock_pypy: PyPy) -> None:
    """Three requests run by turns, and a thread answers a fourth one."""
    profile = sampled(stock_pypy, """
    import asyncio
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route
    async def user(request):
        for _ in range(10):
            make(1)
            await asyncio.sleep(0)
        return PlainTextResponse("done")
    async def export(request):
        for _ in range(10):
            make(2)
            await asyncio.sleep(0)
        return PlainTextResponse("done")
    def plain(request):
        return PlainTextResponse(make(7))
    app = Starlette(routes=[
        Route("/users/{number:int}", user), Route("/export", export),
        Route("/plain", plain, methods=["POST"])])
    app.add_middleware(frameworks.StarletteLabels)
    async def ask(path, method="GET"):
        sent = []
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}
        async def send(message):
            sent.append(message)
        await app({"type": "http", "method": method, "path": path, "headers": [],
                   "query_string": b"", "root_path": "", "scheme": "http"},
                  receive, send)
        return sent[0]["status"]
    async def main():
        found = await asyncio.gather(ask("/users/1"), ask("/export"), ask("/users/2"),
                                     ask("/plain", "POST"), ask("/nowhere"))
        assert found == [200, 200, 200, 200, 404], found
        make(5)
    vmprof_allocation.start("out.vmprof", 1)
    asyncio.run(main())
    """)
    assert made(profile) == {
        ("/users/{number:int}", "GET"): 20, ("/export", "GET"): 20,
        ("/plain", "POST"): 7}
