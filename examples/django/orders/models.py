"""One table."""

from django.db import models


class Order(models.Model):
    """``receipt`` is written by the job that charges it."""

    cents = models.IntegerField()
    receipt = models.CharField(max_length=60, default="")
