"""Label the allocations of web frameworks with the route (see labelling.py).

Django, in ``MIDDLEWARE``::

    "vmprof_allocation.frameworks.DjangoLabels"

Flask::

    vmprof_allocation.frameworks.label_flask(app)

Starlette and FastAPI::

    app.add_middleware(vmprof_allocation.frameworks.StarletteLabels)

Each middleware sets the labels ``endpoint``, the pattern of the route, and ``method``.
"""
from __future__ import annotations

from vmprof_allocation.session.labelling import labels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

#: value of ``endpoint`` if the route is unknown
NO_ROUTE = "[no route]"


class DjangoLabels:
    """A Django middleware; the route is known when the view is about to be called."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        """Store the next middleware or the view."""
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        """Answer a request, with labels."""
        with labels(method=request.method, endpoint=NO_ROUTE) as here:
            request._vmprof_allocation_labels = here
            return self._get_response(request)

    def process_view(self, request: Any, view: object, args: object,
                     kwargs: object) -> None:
        """Change the label `endpoint` to the route of the request."""
        route = request.resolver_match.route
        request._vmprof_allocation_labels.update(
            endpoint="/" + route.removeprefix("^").removeprefix("/"))


def label_flask(app: Any) -> None:
    """Label the allocations of all requests that a Flask application answers."""
    import flask  # type: ignore[import-not-found,unused-ignore]

    def begin() -> None:
        rule = flask.request.url_rule
        here = labels(endpoint=rule.rule if rule else NO_ROUTE,
                      method=flask.request.method)
        flask.g._vmprof_allocation_labels = here.__enter__()

    def end(error: BaseException | None) -> None:
        here = flask.g.pop("_vmprof_allocation_labels", None)
        if here is not None:
            here.__exit__()

    app.before_request(begin)
    app.teardown_request(end)


class StarletteLabels:
    """An ASGI middleware for applications with Starlette's routes."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        """Store the next ASGI application."""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, with labels."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with labels(endpoint=_route(scope), method=scope.get("method", "websocket")):
            await self._app(scope, receive, send)


def _route(scope: Any) -> str:
    from starlette.routing import (  # type: ignore[import-not-found,unused-ignore]
        Match,
    )
    for route in getattr(scope.get("app"), "routes", ()):
        match, _ = route.matches(scope)
        if match == Match.FULL:
            return str(getattr(route, "path", "")) or NO_ROUTE
    return NO_ROUTE
