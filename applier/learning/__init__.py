"""Lessons of finished conversations, as lines of files that a person approves; a new session reads them as a record."""
