"""The record in SQL: what became of every tracked job, drained from the server's stream and read by people."""
