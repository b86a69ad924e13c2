"""A proxy between any client and its provider, with a session behind every conversation; needs the extra ``proxy``."""

from applier.adapters.proxy.asgi import Upstreams
from applier.adapters.proxy.proxy_server import ProxyServer, ProxySettings

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]
