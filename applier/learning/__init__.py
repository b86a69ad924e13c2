"""What finished conversations leave for the next ones: lessons, each with where it was said, as lines of files that a
person approves, edits and commits. Nothing here acts: what a new session is told of it is a record.
"""
