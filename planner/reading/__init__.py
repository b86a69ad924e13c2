"""What is read: messages, turns, numbered lines, token counts; nothing here judges."""
