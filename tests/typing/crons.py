"""A job with a cron is the job that it was."""

from __future__ import annotations

from henchman import App

app = App()


@app.cron("0 9 * * 1-5", tz="Europe/Paris", kwargs={"country": "fr"})
@app.cron(every=30, name="often")
@app.job
def report(country: str = "fr") -> int:
    return len(country)


@app.cron(every=30)
@app.job(queue="low")
async def areport() -> str:
    return ""


report.enqueue(country="de")
report.enqueue(5)  # expect-error: arg-type
number: int = report("de")
areport.enqueue(1)  # expect-error: call-arg
app.cron("* * * * *", evry=5)  # expect-error: call-arg
app.cron(every="30")  # expect-error: arg-type


@app.cron("* * * * *")  # expect-error: type-var
def plain() -> None: ...
