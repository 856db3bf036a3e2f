"""What is written to the log, and how."""
