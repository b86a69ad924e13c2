"""A proxy between any client and its provider, with a session behind every conversation; needs the extra ``proxy``."""

from applier.adapters.proxy.proxy_server import ProxyServer, ProxySettings, Upstreams

__all__ = ["ProxyServer", "ProxySettings", "Upstreams"]
