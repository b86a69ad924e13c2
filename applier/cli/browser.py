"""Shows a page in a browser on this machine: the extra behind it, the link to it, the end of it."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import click

from applier.cli.screen import echo

__all__ = ["show_page", "web_pages"]


def web_pages() -> Any:
    """The package `applier.web`.

    Raises:
        ClickException: its extra is not installed.
    """
    try:
        return importlib.import_module("applier.web")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'relevance-compactor[web]'") from None


def show_page(content: Any) -> None:
    """Answer to a browser with `content`, a `Review` or a `Report`, until the page is finished or Ctrl-C."""
    server = web_pages().PageServer(content)
    echo(f"Open once, in a browser on this machine: {server.link}", err=True)
    echo("Finish there, or here by Ctrl-C.", err=True)
    with suppress(KeyboardInterrupt):
        server.run()
