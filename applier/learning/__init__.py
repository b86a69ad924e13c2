"""Lessons of finished conversations: lines in a project's files that a person approves, for new sessions to read."""
