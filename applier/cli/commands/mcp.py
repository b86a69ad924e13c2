"""`compactor mcp`: an MCP server on standard input and output, for one conversation."""

from __future__ import annotations

import importlib

import click

from applier.cli.files import existing_store, known_history, store_anywhere
from applier.cli.options import store_option
from applier.cli.screen import print_json
from applier.program import program

__all__ = ["mcp_command"]


@click.command
@click.option("--session", envvar="COMPACTOR_SESSION", help="A session, or the name of a client's (set by `wrap`).")
@click.option("--history", metavar="KEY", help="A stored history instead, such as h1a2b3c4d.")
@click.option("--config", is_flag=True, help="Print this server for a client's configuration, and end.")
@store_option
def mcp_command(session: str | None, history: str | None, config: bool, store: str | None) -> None:
    """Let a client look behind the references of one conversation: search, restore, facts, brief, log, preview.

    Nothing of other conversations in the store can be reached, whatever the client asks for.
    """
    if config:
        print_json(_configuration(session, history, store and store_anywhere(store)))
        return
    if not session and not history:
        raise click.UsageError("Say by --session or --history which conversation may be seen.")
    if history:
        with existing_store(store) as opened:
            known_history(opened, history)
    try:
        adapter = importlib.import_module("applier.adapters.mcp")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'relevance-compactor[mcp]'") from None
    visible = adapter.Visible(lambda: existing_store(store), session=session or "", history=history or "")
    try:
        adapter.mcp_server(visible).run("stdio")
    finally:
        visible.close()


def _configuration(session: str | None, history: str | None, store: str | None) -> dict[str, object]:
    """What MCP clients call a server, with the options that were given: the same program wherever it is run."""
    options = {"--session": session, "--history": history, "--store": store}
    command, *arguments = program("mcp", *(part for name, value in options.items() if value for part in (name, value)))
    return {"type": "stdio", "mcp_command": command, "args": arguments}
