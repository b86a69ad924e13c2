"""Options that `proxy` and `wrap` share, and the settings they make."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import click

from applier.cli.options import store_option
from applier.settings import SessionSettings

if TYPE_CHECKING:
    from applier.adapters.proxy import ProxyServer

__all__ = ["TOKEN_VARIABLE", "open_proxy", "session_options"]

TOKEN_VARIABLE = "COMPACTOR_PROXY_TOKEN"
"""Holds the proxy's token; no option, for a command line can be read by every user of the machine."""
_PLANNERS = get_args(SessionSettings.model_fields["planner"].annotation)


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options about sessions and providers; hand their values to `open_proxy`."""
    for option in (
        store_option,
        click.option("--planner", type=click.Choice(_PLANNERS), help="Who plans (default: as set, else a model)."),
        click.option("--planner-model", metavar="MODEL",
                     help="The model that plans, asked at --upstream with the agent's own key; PROVIDER/MODEL: at that "
                     "provider, with your environment's key for it."),
        click.option("--preset", help="Table of tiers and triggers (default: as set, else relevance)."),
        click.option("--window", type=click.IntRange(2_000), metavar="TOKENS", help="The model's context window."),
        click.option("--openai-upstream", metavar="URL", default="https://api.openai.com", show_default=True,
                     help="Where requests of OpenAI's API go ('': they are refused). Rules plan for them."),
        click.option("--upstream", metavar="URL", default="https://api.anthropic.com", show_default=True,
                     help="Where requests of Anthropic's API go ('': they are refused), the planner's included."),
    ):  # fmt: skip
        command = option(command)
    return command


def open_proxy(
    *,
    upstream: str,
    openai_upstream: str,
    window: int | None,
    preset: str | None,
    planner: str | None,
    planner_model: str | None,
    store: str | None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> ProxyServer:
    """A proxy that listens, as the options say; it answers once it is entered or run.

    Raises:
        ClickException: the extra is not installed.
        SettingsError: a setting is wrong, an upstream is no address, or others can reach it and there is no token.
    """
    try:
        proxy = importlib.import_module("applier.adapters.proxy")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'relevance-compactor[proxy]'") from None
    session = {"window_tokens": window, "preset": preset, "planner": planner, "planner_model": planner_model}
    settings = proxy.ProxySettings(
        host=host,
        port=port,
        token=os.environ.get(TOKEN_VARIABLE, ""),
        upstreams=proxy.Upstreams(upstream, openai_upstream),
        store=store,
        session={name: value for name, value in session.items() if value is not None},
    )
    server: ProxyServer = proxy.ProxyServer(settings)
    return server
