"""Measurements of what a compacted list still contains, and the methods of compaction that they compare."""
