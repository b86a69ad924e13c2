"""Connections between agent frameworks and a `Session`, which compacts the messages before each call of the model.

Each framework's module needs only the framework's package, depends on no other one, and contains no compaction logic.
"""
