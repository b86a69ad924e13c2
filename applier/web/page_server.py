"""`PageServer`: a page on a port of this machine, for one browser, until it is finished.

An ASGI application on loopback, never elsewhere: static files, and a few requests with JSON in and out.
"""

from __future__ import annotations

import importlib.resources
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from applier.serving import AppServer
from applier.web.page_guard import Keys, PageGuard, refusal
from applier.web.plan_review import Review, Revision, Search
from planner.errors import CompactorError

__all__ = ["PageServer"]

HOST = "127.0.0.1"
_STOP_SECONDS = 2
"""How long answers under way may still run after the end."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

_Body = TypeVar("_Body", bound=BaseModel)
Endpoint = Callable[[Request], Awaitable[Response]]


class PageServer(AppServer):
    """One page; it can end the server itself."""

    def __init__(self, content: Review | Mapping[str, Any], port: int = 0) -> None:
        """Open `port` (0: any that is free); nothing is answered yet. What is no review is a session's, as JSON data.

        Raises:
            OSError: the port is taken.
        """
        listening = socket.create_server((HOST, port))
        self._keys = Keys()
        self.port: int = listening.getsockname()[1]
        routes = [*_file_routes("review" if isinstance(content, Review) else "session"), *self._key_routes()]
        routes += _review_routes(content) if isinstance(content, Review) else _report_routes(content)
        guard = Middleware(PageGuard, keys=self._keys, port=self.port)
        super().__init__(Starlette(routes=routes, middleware=[guard]), listening, _STOP_SECONDS)

    @property
    def link(self) -> str:
        """Where the page is; opens it once. The token is in the fragment, which no log and no other site sees."""
        return f"http://{HOST}:{self.port}/#{self._keys.token}"

    def _key_routes(self) -> Iterator[Route]:
        async def open_page(request: Request) -> Response:
            """The key, for the token of the printed link."""
            try:
                body = json.loads(await request.body())
            except (ValueError, RecursionError):
                return refusal(400, "expected JSON")
            token = body.get("token") if isinstance(body, dict) else None
            key = self._keys.exchange(token) if isinstance(token, str) else ""
            if not key:
                return refusal(401, "this link was used before, or is another command's: run the command again")
            return _answer({"key": key})

        async def finish(_request: Request) -> Response:
            """End the command."""
            self.stop()
            return _answer({})

        yield Route("/api/open", open_page, methods=["POST"])
        yield Route("/api/finish", finish, methods=["POST"])


def _file_routes(page: str) -> Iterator[Route]:
    folder = importlib.resources.files("applier.web").joinpath("static")
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", f"{page}.html")
        if name not in files:
            return refusal(404, "no such page")
        return Response(files[name], media_type=_TYPES[name.rpartition(".")[2]])

    yield Route("/", file)
    yield Route("/static/{name}", file)


def _review_routes(review: Review) -> Iterator[Route]:
    """What the page of a review can ask for; work on the plan is done in a thread."""

    async def page(_request: Request) -> Response:
        return _answer(await anyio.to_thread.run_sync(review.page))

    async def turn(request: Request) -> Response:
        lines = await anyio.to_thread.run_sync(review.lines, request.path_params["turn_id"])
        return refusal(404, "no such turn") if lines is None else _answer(lines)

    yield Route("/api/review", page)
    yield Route("/api/turns/{turn_id}", turn)
    for name, work in {"check": review.check, "save": review.save, "apply": review.apply}.items():
        yield Route(f"/api/{name}", _with_body(Revision, work), methods=["POST"])
    yield Route("/api/search", _with_body(Search, review.search), methods=["POST"])


def _with_body(form: type[_Body], work: Callable[[_Body], Mapping[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            body = form.model_validate_json(await request.body())
            return _answer(await anyio.to_thread.run_sync(work, body))
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            return refusal(400, f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
        except CompactorError as error:
            return refusal(409, str(error))
        except OSError as error:
            return refusal(409, f"{error.filename or 'input/output'}: {error.strerror or error}")

    return endpoint


def _report_routes(report: Mapping[str, Any]) -> Iterator[Route]:
    async def page(_request: Request) -> Response:
        return _answer(report)

    yield Route("/api/report", page)


def _answer(value: Mapping[str, Any]) -> Response:
    """`value` as JSON in ASCII: a transcript may hold halves of characters, which UTF-8 does not."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")
