"""Measure a Django service over loopback, with and without pushed profiles.

    service_worker.py turns WARM REQUESTS TURNS SEED URL

The experiment `service` runs this script. In this form, one process runs a plain and a
pushed block of REQUESTS in each turn, in a random order. It prints a line of JSON for
each block, with the processor time in seconds. A pushed block is exactly one segment,
including the rotation at its end. New stacks and functions of a segment cost more than
those that the segment already contains.

    service_worker.py once WARM REQUESTS

In this form, the script runs one block and prints its processor time. The experiment
starts such processes with or without --push. In both forms, the process answers WARM
requests before the first block.
"""
from __future__ import annotations

import fcntl
import gc
import http.client
import itertools
import json
import os
import random
import signal
import sys
import time
import wsgiref.simple_server
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Json = dict[str, Any]

#: Seconds of requests before a block, in which the automatic interval settles.
SETTLE = 0.3
#: Seconds between automatic rotations: longer than any block.
EVERY = 3600.0
USERS = 500
PAGE = """\
<table>{% for user in users %}
  <tr class="{% cycle 'odd' 'even' %}"><td>{{ user.username }}</td>
  <td>{{ user.email|lower }}</td><td>{{ user.date_joined|date:"Y-m-d" }}</td></tr>
{% endfor %}</table>
"""
#: The list of routes that Django reads from this module.
urlpatterns: list[Any] = []


def application() -> Any:
    """Return a WSGI application that renders pages from a database."""
    from django.conf import settings
    settings.configure(
        SECRET_KEY="none", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_TZ=False,
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3",
                               "NAME": ":memory:"}},
        TEMPLATES=[{
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {"loaders": [(
                "django.template.loaders.locmem.Loader", {"page.html": PAGE})]}}])
    import django
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, HttpResponse, JsonResponse
    from django.shortcuts import render
    from django.urls import path

    def users(_: HttpRequest, count: int) -> HttpResponse:
        return render(None, "page.html", {"users": User.objects.all()[:count]})

    def names(_: HttpRequest, count: int) -> HttpResponse:
        return JsonResponse(list(
            User.objects.values_list("username", flat=True)[:count]), safe=False)

    urlpatterns.extend([path("users/<int:count>", users),
                        path("names/<int:count>", names)])
    call_command("migrate", verbosity=0)
    User.objects.bulk_create(
        User(username="user%d" % i, email="User%d@Example.org" % i)
        for i in range(USERS))
    return get_wsgi_application()


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    """A request handler without a log."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def client(port: int) -> None:
    """Send one request after the other until a request fails."""
    for number in itertools.count():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", ("/users/10", "/names/100", "/users/50")[number % 3])
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        answer.read()
        connection.close()


@contextmanager
def service() -> Iterator[Any]:
    """Start a server, and a process that sends requests.

    Yields:
        The server, which answers one request per call of handle_request().
    """
    server = wsgiref.simple_server.WSGIServer(("127.0.0.1", 0), _Handler)
    asking = os.fork()
    if asking == 0:
        try:
            server.socket.close()
            client(server.server_port)
        finally:
            os._exit(1)
    try:
        server.set_app(application())
        yield server
    finally:
        os.kill(asking, signal.SIGKILL)
        os.waitpid(asking, 0)
        server.server_close()


def answer(server: Any, requests: int) -> float:
    """Answer requests, and return the processor time of all threads in seconds."""
    start = time.process_time()
    for _ in range(requests):
        server.handle_request()
    return time.process_time() - start


def settle(server: Any) -> None:
    """Answer requests for SETTLE seconds, so that the automatic interval settles."""
    until = time.perf_counter() + SETTLE
    while time.perf_counter() < until:
        server.handle_request()


class Pushed:
    """The profiles of one process with rotation, and the pusher that sends them."""

    def __init__(self, url: str) -> None:
        """Start a pusher for a URL."""
        from vmprof_allocation.settings.parsing import make_settings
        from vmprof_push import start
        self._settings = make_settings("auto")
        self._first = start.start(self._settings, url, EVERY)
        self._number = 0
        # The pusher runs until no process has a lock on a profile in its folder.
        self._held = os.open(self._first, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def _next(self) -> str:
        self._number += 1
        path, suffix = os.path.splitext(self._first)
        return "%s.%d%s" % (path, self._number, suffix)

    def block(self, server: Any, requests: int) -> Json:
        """Answer requests in a new segment.

        Returns:
            The processor time in seconds, the number of samples, and the allocated
            bytes.
        """
        from vmprof_allocation.session.periodic_rotation import PeriodicRotation
        from vmprof_allocation.session.session import Session
        session = Session(self._settings, self._next())
        session.start()
        rotating = PeriodicRotation(session)
        rotating.begin()
        with rotating:
            settle(server)
            session.rotate(self._next())
            before = session.statistics()
            start = time.process_time()
            answer(server, requests)
            after = session.statistics()
            session.rotate(self._next())
            cpu = time.process_time() - start
        return {"cpu": cpu, "samples": after.samples - before.samples,
                "allocated": after.allocated - before.allocated}

    def end(self) -> None:
        """Release the lock, so that the pusher ends."""
        os.close(self._held)


def plain(server: Any, requests: int) -> Json:
    """Answer requests without a profile, and return the processor time in seconds."""
    settle(server)
    return {"cpu": answer(server, requests)}


def turns(url: str, warm: int, requests: int, count: int, seed: int) -> None:
    """Run a plain and a pushed block in each turn, and print their results."""
    rng = random.Random(seed)
    with service() as server:
        answer(server, warm)
        pushed = Pushed(url)
        for turn in range(-1, count):
            for kind in rng.sample(("plain", "push"), 2):
                gc.collect()
                row = (pushed.block if kind == "push" else plain)(server, requests)
                if turn >= 0:           # Turn -1 is a warm-up.
                    print(json.dumps({"kind": kind, "turn": turn, **row}), flush=True)
        pushed.end()


def once(warm: int, requests: int) -> None:
    """Run one block, and print its processor time."""
    with service() as server:
        answer(server, warm)
        print(json.dumps({"cpu": answer(server, requests)}))


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "turns":
        turns(arguments.pop(), *map(int, arguments))
    else:
        once(*map(int, arguments))
