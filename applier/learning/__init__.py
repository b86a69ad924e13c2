"""Lessons of finished conversations as lines of files that a person approves; a new session gets them as a record."""
