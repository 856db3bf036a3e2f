"""What permissions hang on, and the entry in the admin: no table stands behind it."""

from __future__ import annotations

from django.db import models

__all__ = ["BackgroundJob"]


class BackgroundJob(models.Model):  # type: ignore[misc]
    """``henchman.view_backgroundjob`` lets staff look into the console, ``henchman.change_backgroundjob`` act there."""

    class Meta:
        app_label = "henchman"
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "background job"
