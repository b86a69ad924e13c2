"""`compactor proxy`: the proxy as a program of its own, until it is stopped."""

from __future__ import annotations

from typing import Any

import click

from applier.cli.options import as_json
from applier.cli.proxy_options import open_proxy, session_options
from applier.cli.screen import echo, print_json

__all__ = ["proxy_command"]


@click.command
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback needs $COMPACTOR_PROXY_TOKEN.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True)
@session_options
@as_json
def proxy_command(as_json: bool, **options: Any) -> None:
    """Keep the conversations of any client within their window.

    Speaks Anthropic's Messages API and OpenAI's chat completions; /metrics and /health are its own. Keys are passed
    on, never stored. Ctrl-C stops it; started again on the same store it goes on where it was.
    """
    server = open_proxy(**options)
    bases = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
    if as_json:
        print_json(bases)
    for name, url in () if as_json else bases.items():
        echo(f"{name}={url}", err=True)
    server.run()
