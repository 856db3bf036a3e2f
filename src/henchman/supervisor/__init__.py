"""The parent process, its children, and how they begin and end."""
