"""Where agents live: transcript formats, frameworks, and programs in between."""
