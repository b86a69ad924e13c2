"""The commands, grouped by their users' purpose; the function of each is called ``NAME_command``."""
