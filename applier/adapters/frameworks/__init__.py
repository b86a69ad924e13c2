"""Thin bridges from agents to a `Session`: SDK middleware, tools for the model, other frameworks.

Bridges do not depend on each other, need only the package they are for, and contain no compaction logic.
"""
