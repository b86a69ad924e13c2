"""How it is laid out: placeholders, the order of what stands, thinking, and what the change costs."""
