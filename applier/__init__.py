"""Acts, keeps and runs: turns a plan into a message list, and stores and restores what was removed."""
