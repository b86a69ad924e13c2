"""Reads messages, turns, numbered lines and token counts; judges nothing."""
