"""Relevance of lines, and the order in which they deserve space."""
