"""What is worth keeping: relevance of lines, what is pinned, and the selection that meets a target."""
