"""The console within Django's admin: an entry among the models, and the whole console behind it, by permission."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.urls import path, re_path, reverse
from django.views.decorators.csrf import csrf_exempt

from henchman.contrib.django.models import BackgroundJob
from henchman.contrib.django.mount import Mount, Person
from henchman.contrib.django.project import project_app

__all__ = ["BackgroundJobAdmin"]


@admin.register(BackgroundJob)
class BackgroundJobAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Who may view background jobs looks; who may change them acts. Nobody adds or deletes any here."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._mount: Mount | None = None

    def get_urls(self) -> list[Any]:
        """The console takes every address below its own."""
        view = self.admin_site.admin_view(csrf_exempt(self.console))  # it has gates of its own against forged requests
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", view, name=name), re_path(r"^(?P<rest>.+)$", view)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are pushed by programs."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Deleting is an act of the console."""
        return False

    def console(self, request: HttpRequest, rest: str = "") -> Any:
        """One request to the console."""
        if self._mount is None:
            self._mount = Mount(project_app(), secret=settings.SECRET_KEY)
        role = "act" if self.has_change_permission(request) else "look" if self.has_view_permission(request) else None
        names = self.opts.app_label, self.opts.model_name
        root = reverse("{}:{}_{}_changelist".format(self.admin_site.name, *names))
        return self._mount.answer(request, root.rstrip("/"), rest, Person(request.user.get_username(), role))
