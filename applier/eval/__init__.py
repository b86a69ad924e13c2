"""How much survives a compaction: the measures, the methods they compare, the reports."""
