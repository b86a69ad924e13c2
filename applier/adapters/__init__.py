"""Connections to agents: formats of their transcripts, their frameworks, a proxy, plugins and tools for the model."""
