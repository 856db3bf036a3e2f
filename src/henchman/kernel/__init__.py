"""What every room stands on: time, ids, delays, chains, events, services. Knows nothing about jobs."""
