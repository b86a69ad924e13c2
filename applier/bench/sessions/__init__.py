"""What sessions cost and keep, measured on transcripts: ``python -m applier.bench.sessions --help``."""
