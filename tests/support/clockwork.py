"""An app whose periodic jobs write for when they were planned, for tests with real worker processes."""

from __future__ import annotations

from henchman import App, current_job
from support.acting import write

app = App()


@app.cron(every=0.5)
@app.job(name="tick")
def tick() -> None:
    """One line in the trace for each run, by its planned time."""
    write("tick", str(current_job().payload["hm"]["planned"]))


@app.cron("0 9 * * 1-5", tz="Europe/Paris", name="weekdays", missed="skip")
@app.job(name="report", queue="reports")
def report() -> None:
    """Not due while tests run, unless at nine in Paris."""
