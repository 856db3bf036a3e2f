"""One app with a short job that is given much, for a real worker process."""

from __future__ import annotations

from henchman import App

app = App()


@app.job(name="weigh", queue="large")
def weigh(text: str, number: int) -> None:
    """Look at all of it."""
    assert len(text) == text.count("x")
