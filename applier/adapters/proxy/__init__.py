"""A proxy between any client and its provider, with a session for each conversation; needs the extra ``proxy``."""

from applier.adapters.proxy.configuration import ProxySettings
from applier.adapters.proxy.server import ProxyServer
from applier.adapters.proxy.upstreams import Upstreams

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]
