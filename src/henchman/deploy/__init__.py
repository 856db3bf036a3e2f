"""What a change of code means for the jobs that wait."""
