"""One file a command; each calls its `click` command ``command``."""
