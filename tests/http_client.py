"""HTTP requests of the tests: httpx itself gives up after 5 seconds."""

from functools import partial

import httpx

from tests.patience import PATIENCE_SECONDS

Client = partial(httpx.Client, timeout=PATIENCE_SECONDS)
get = partial(httpx.get, timeout=PATIENCE_SECONDS)
post = partial(httpx.post, timeout=PATIENCE_SECONDS)
request = partial(httpx.request, timeout=PATIENCE_SECONDS)
stream = partial(httpx.stream, timeout=PATIENCE_SECONDS)
