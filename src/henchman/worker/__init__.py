"""The parts of one worker process."""
