"""The batches of the test server: each request is answered as one that was sent alone, once the batch was looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from applier.testing import Answer, Failure, Request
from applier.testing.api_request import Block

__all__ = ["Batches"]

_PLACE = re.compile(r"/v1/messages/batches(?:/(?P<id>\w+)(?P<results>/results)?)?")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Batches:
    """Those of one server."""

    def __init__(self, answer: Callable[[Request], tuple[Block, Any]]) -> None:
        """`answer`: what one request is answered, and the reply of the script that it is made from."""
        self._answer = answer
        self._results: dict[str, list[Block]] = {}
        self._created: dict[str, datetime] = {}
        self._seen: set[str] = set()

    def create(self, request: Request) -> tuple[Block, Answer | Failure]:
        """What answers a new batch."""
        asked = request.body.get("requests") or []
        names = [str(one.get("custom_id", "")) for one in asked]
        if not names or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
            failure = Failure(400, "invalid_request_error", "requests: expected unique custom ids of 64 characters")
            return failure.as_json(), failure
        key = f"msgbatch_{len(self._results) + 1:06}"
        self._created[key] = datetime.now(UTC)
        rows = zip(names, asked, strict=True)
        self._results[key] = [self._row(name, one["params"], request.headers) for name, one in rows]
        return self._batch(key, ""), Answer()

    def found(self, path: str, url: str) -> tuple[int, str] | None:
        """Status and text of what answers a look at all batches, at one, which is under way the first time, or at its
        results; None for another path."""
        match = _PLACE.fullmatch(path)
        if match is None:
            return None
        key = match["id"]
        if not key:
            newest = [self._batch(one, "") for one in reversed(self._results)]
            return 200, json.dumps({"data": newest, "has_more": False, "first_id": None, "last_id": None})
        if key not in self._results:
            failure = Failure(404, "not_found_error", f"{path}: not found")
            return failure.status, json.dumps(failure.as_json())
        if match["results"]:
            return 200, "".join(f"{json.dumps(row)}\n" for row in reversed(self._results[key]))
        ended = key in self._seen
        self._seen.add(key)
        return 200, json.dumps(self._batch(key, f"{url}/v1/messages/batches/{key}/results" if ended else ""))

    def _row(self, name: str, params: dict[str, Any], headers: Mapping[str, str]) -> Block:
        message, reply = self._answer(Request(params, headers, json.dumps(params).encode()))
        failed = isinstance(reply, Failure)
        result = {"type": "errored", "error": message} if failed else {"type": "succeeded", "message": message}
        return {"custom_id": name, "result": result}

    def _batch(self, key: str, results: str) -> Block:
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        kinds = [str(row["result"]["type"]) if results else "processing" for row in self._results[key]]
        status = {"processing_status": "ended" if results else "in_progress", "results_url": results or None}
        counted = {"request_counts": {**counts, **{kind: kinds.count(kind) for kind in kinds}}}
        times = {"created_at": self._created[key], "expires_at": self._created[key] + timedelta(days=1)}
        said = {name: time.isoformat() for name, time in times.items()}
        return {"id": key, "type": "message_batch", **said, **status, **counted}
