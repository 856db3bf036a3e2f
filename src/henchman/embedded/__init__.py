"""The server that Henchman brings with it."""
