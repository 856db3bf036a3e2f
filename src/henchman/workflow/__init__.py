"""Features around a job's life, one file a feature, both halves of each: what is defined and what a worker does."""
