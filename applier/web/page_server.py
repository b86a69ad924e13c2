"""Serves a page on a port of this machine to one browser, until the person ends the server by a button on the page.

Only the browser that opened the printed link may use the page: the token in the link works once and gives a key that
the page sends with each request. Requests with another host name, from pages of other sites, or sent by a form are
refused. Every answer has a policy by which the browser runs no text of a transcript as a script.
"""

from __future__ import annotations

import hmac
import importlib.resources
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from applier.serving import AppServer
from applier.web.reviews import Replan, ReviewPage, Revision, Search
from planner.errors import CompactorError

HOST = "127.0.0.1"
KEY_HEADER = "x-compactor-key"
"""Header in which the page in the browser sends its key."""
PROTECTED = "/api/"
"""Beginning of the paths for which a request needs the key. Files at other paths contain nothing of a transcript."""
OPENING = "/api/open"
"""Path at which the page in the browser exchanges the token in its link for the key, once."""
MAX_BODY_BYTES = 8 * 2**20
"""Size of the largest request; a person's changes to a plan of 100,000 turns take less."""
STOP_SECONDS = 2
"""Time in seconds for which the server waits for unfinished answers before it ends."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
"""Media types of the page's files by suffix."""
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer, by which a browser refuses foreign scripts, frames and requests."""

Endpoint = Callable[[Request], Awaitable[Response]]
"""Function that answers a request."""


class PageServer(AppServer):
    """Server of one page in a browser, which the person can end by a button on the page."""

    def __init__(self, content: ReviewPage | Mapping[str, Any]) -> None:
        """Open a free port, without answering yet. `content`: a plan to review, or a session's report as JSON data."""
        listening = socket.create_server((HOST, 0))
        self.port: int = listening.getsockname()[1]
        self._token, self._key = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._is_opened = False
        name = "review" if isinstance(content, ReviewPage) else "session"
        opening, finish = (
            Route(OPENING, self._open, methods=["POST"]),
            Route("/api/finish", self._finish, methods=["POST"]),
        )
        guard = Middleware(BaseHTTPMiddleware, dispatch=self._guard)
        app = Starlette(routes=[*_file_routes(name), opening, finish, *_content_routes(content)], middleware=[guard])
        super().__init__(app, listening, STOP_SECONDS)

    @property
    def link(self) -> str:
        """Link that opens the page once. Its token is in the part after ``#``, which no log and no site receives."""
        return f"http://{HOST}:{self.port}/#{self._token}"

    async def _open(self, request: Request) -> Response:
        """Answer with the key that all other requests need, if the request is the first with the link's token."""
        try:
            token = str(json.loads(await request.body())["token"])
        except (ValueError, RecursionError, TypeError, LookupError):
            return _refusal(400, "expected JSON with a token")
        if self._is_opened or not _is_secret(token, self._token):
            return _refusal(401, "this link was used before, or is another command's: run the command again")
        self._is_opened = True
        return _answer({"key": self._key})

    async def _finish(self, _request: Request) -> Response:
        """End the server, as the person asks on the page."""
        self.stop()
        return _answer({})

    async def _guard(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Pass on a request that `_reason_to_refuse` accepts; refuse any other. Add security headers to the answer."""
        reason = self._reason_to_refuse(request)
        answer = _refusal(*reason) if reason else await call_next(request)
        answer.headers.update(_HEADERS)
        return answer

    def _reason_to_refuse(self, request: Request) -> tuple[int, str] | None:
        """Return the HTTP status and text of an error for a request that does not come from this page in its browser,
        or has a body that is no JSON or too large; None for a request to accept."""
        headers, path = request.headers, request.url.path
        host, is_post = headers.get("host", ""), request.method == "POST"
        # a site could let its own host name lead to this machine (DNS rebinding)
        if host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return 403, f"host {host[:80]!r} is not this page's"
        is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not is_same_site or headers.get("origin", f"http://{host}") != f"http://{host}":
            return 403, "requests of other sites' pages are refused"
        if not path.startswith(PROTECTED):
            return None
        if path != OPENING and not _is_secret(headers.get(KEY_HEADER, ""), self._key):
            return 401, "this page was not opened by the link that the command printed"
        if is_post and headers.get("content-type", "").split(";")[0] != "application/json":
            return 415, "expected application/json"
        length = headers.get("content-length", "")
        if is_post and not (length.isdecimal() and int(length[:20]) <= MAX_BODY_BYTES):
            return 413, f"a request may have {MAX_BODY_BYTES:,} bytes, and must say how many it has"
        return None


def _is_secret(text: str, secret: str) -> bool:
    """Return True if `text` equals `secret`. The time that this takes does not show how many characters are right."""
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _file_routes(page: str) -> Iterator[Route]:
    """Yield the routes to the page's files, which ship with the package; ``/`` leads to the HTML file of `page`."""
    folder = importlib.resources.files("applier.web").joinpath("static")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}

    async def file(request: Request) -> Response:
        """Answer with the file that the path names."""
        name = request.path_params.get("name", f"{page}.html")
        if name not in files:
            return _refusal(404, "no such page")
        return Response(files[name], media_type=_TYPES[name.rpartition(".")[2]])

    yield Route("/", file)
    yield Route("/static/{name}", file)


def _content_routes(content: ReviewPage | Mapping[str, Any]) -> Iterator[Route]:
    """Yield the routes to the data and actions of a review, or to a session's report."""
    if isinstance(content, ReviewPage):
        yield Route("/api/review", _data_endpoint(content.page))
        yield Route("/api/turns/{turn_id}", _data_endpoint(content.lines))
        for work in (content.check, content.view, content.save, content.apply):
            yield Route(f"/api/{work.__name__}", _action_endpoint(Revision, work), methods=["POST"])
        yield Route("/api/search", _action_endpoint(Search, content.search), methods=["POST"])
        yield Route("/api/replan", _action_endpoint(Replan, content.replan), methods=["POST"])
    else:
        yield Route("/api/report", _data_endpoint(lambda: content))


def _data_endpoint(work: Callable[..., Mapping[str, Any] | None]) -> Endpoint:
    """Return a handler that answers with the result of `work` for the path's parameters; with 404 if it is None."""

    async def endpoint(request: Request) -> Response:
        """Call `work` in another thread, so that the server can answer other requests."""
        value = await anyio.to_thread.run_sync(partial(work, **request.path_params))
        return _refusal(404, "no such turn") if value is None else _answer(value)

    return endpoint


def _action_endpoint(form: type[BaseModel], work: Callable[[Any], Mapping[str, Any]]) -> Endpoint:
    """Return a handler for an action: it reads the body of a request as `form`, calls `work` with it, and answers with
    the result. A body that is not valid is answered by 400, an error of `work` by 409."""

    async def endpoint(request: Request) -> Response:
        """Call `work` in another thread, so that the server can answer other requests."""
        try:
            body = form.model_validate_json(await request.body())
            return _answer(await anyio.to_thread.run_sync(work, body))
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            return _refusal(400, f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
        except CompactorError as error:
            return _refusal(409, str(error))
        except OSError as error:
            return _refusal(409, f"{error.filename or 'input/output'}: {error.strerror or error}")

    return endpoint


def _refusal(status: int, problem: str) -> Response:
    """Return an answer with this HTTP status, and the problem as a text for the person."""
    return JSONResponse({"problem": problem}, status_code=status)


def _answer(value: Mapping[str, Any]) -> Response:
    """Return `value` as an answer in JSON, with NaN and infinity as strings, as a browser's JSON does not have them."""
    text = json.dumps(value)
    text = json.dumps(json.loads(text, parse_constant=str)) if "NaN" in text or "Infinity" in text else text
    return Response(text, media_type="application/json")
