"""Runs in a process of their own: what ``@app.job(isolate=…)`` may say, and the worker's side of such processes."""
