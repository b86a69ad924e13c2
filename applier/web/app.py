"""The pages as an ASGI application: static files, and a few requests with JSON in and out. Decides nothing."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio.to_thread
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from applier.web.guard import Guard, Keys, refusal
from applier.web.report import Report
from applier.web.review import Outcome, Review, Revision
from planner.errors import CompactorError

__all__ = ["page_app"]

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class _Endpoints:
    """What the page of a review can ask for; work on the plan is done in a thread."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def page(self, _request: Request) -> Response:
        """Everything to begin with."""
        return _answer(await anyio.to_thread.run_sync(self._review.page))

    async def turn(self, request: Request) -> Response:
        """One turn as it was."""
        lines = await anyio.to_thread.run_sync(self._review.lines, request.path_params["turn_id"])
        return refusal(404, "no such turn") if lines is None else _answer(lines)

    async def check(self, request: Request) -> Response:
        """What the guards make of a revision."""
        return await self._with_revision(request, self._review.checked)

    async def save(self, request: Request) -> Response:
        """Write the plan."""
        return await self._with_revision(request, lambda revision: _told(self._review.save(revision)))

    async def apply(self, request: Request) -> Response:
        """Write the view, originals first."""
        return await self._with_revision(request, lambda revision: _told(self._review.apply(revision)))

    async def _with_revision(self, request: Request, work: Callable[[Revision], dict[str, Any]]) -> Response:
        try:
            revision = Revision.model_validate_json(await request.body())
            return _answer(await anyio.to_thread.run_sync(work, revision))
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            return refusal(400, f"{'.'.join(map(str, item['loc']))}: {item['msg']}")
        except CompactorError as error:
            return refusal(409, str(error))
        except OSError as error:
            return refusal(409, f"{error.filename or 'input/output'}: {error.strerror or error}")


def _told(outcome: Outcome) -> dict[str, Any]:
    return {"message": outcome.message, "detail": outcome.detail}


def _answer(value: dict[str, Any]) -> Response:
    """`value` as JSON in ASCII: a transcript may hold halves of characters, which UTF-8 does not."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def page_app(content: Review | Report, keys: Keys, port: int, stop: Callable[[], None]) -> Starlette:
    """The application for one page at `port`; `stop` ends the command."""
    folder = importlib.resources.files("applier.web").joinpath("static")
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}
    first = "review.html" if isinstance(content, Review) else "session.html"

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", first)
        if name not in files:
            return refusal(404, "no such page")
        return Response(files[name], media_type=_TYPES[name.rpartition(".")[2]])

    async def open_page(request: Request) -> Response:
        """The key, for the token of the printed link."""
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            return refusal(400, "expected JSON")
        token = body.get("token") if isinstance(body, dict) else None
        key = keys.exchange(token) if isinstance(token, str) else ""
        if not key:
            return refusal(401, "this link was used before, or is another command's: run the command again")
        return _answer({"key": key})

    async def finish(_request: Request) -> Response:
        """End the command."""
        stop()
        return _answer({})

    return Starlette(
        routes=[
            Route("/", file),
            Route("/static/{name}", file),
            Route("/api/open", open_page, methods=["POST"]),
            Route("/api/finish", finish, methods=["POST"]),
            *(_review_routes(content) if isinstance(content, Review) else _report_routes(content)),
        ],
        middleware=[Middleware(Guard, keys=keys, port=port)],
    )


def _review_routes(review: Review) -> Iterator[Route]:
    pages = _Endpoints(review)
    yield Route("/api/review", pages.page)
    yield Route("/api/turns/{turn_id}", pages.turn)
    yield Route("/api/check", pages.check, methods=["POST"])
    yield Route("/api/save", pages.save, methods=["POST"])
    yield Route("/api/apply", pages.apply, methods=["POST"])


def _report_routes(report: Report) -> Iterator[Route]:
    async def page(_request: Request) -> Response:
        return _answer(report.page())

    yield Route("/api/report", page)
