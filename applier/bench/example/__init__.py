"""A small coding agent over the real SDK, and a transcript of one of its runs for `compactor demo`."""
