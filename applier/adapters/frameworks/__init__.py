"""Thin bridges from agents to a `Session`: SDK middleware, tools for the model, other frameworks.

Each bridge stands alone and needs only the package it is for; none holds compaction logic.
"""
