"""Measures of how much survives a compaction, and the methods they compare."""
