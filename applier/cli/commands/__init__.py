"""The commands, those together that a user thinks of together; the function of each is called ``NAME_command``."""
