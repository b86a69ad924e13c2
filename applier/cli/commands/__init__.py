"""Commands of `compactor`, grouped by purpose; the function of each is called ``NAME_command``."""
