"""Reading and acting for people."""
