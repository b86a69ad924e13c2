"""Relevance of lines, and their order for filling space."""
