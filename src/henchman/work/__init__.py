"""The contract between who gets a job, who runs it and who settles it."""
