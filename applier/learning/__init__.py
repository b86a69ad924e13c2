"""Lessons of finished conversations, each with its source, as lines of files that a person approves, edits and commits.
A new session gets them as a record, never as instructions."""
