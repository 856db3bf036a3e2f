"""Django's settings, which a process can be given once: for every test that needs some."""

from __future__ import annotations


def configure() -> None:
    """Settings with one database in memory, and no app."""
    import django
    from django.apps import apps
    from django.conf import settings

    if not settings.configured:
        base = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:henchman?mode=memory&cache=shared"}
        settings.configure(DATABASES={"default": base}, INSTALLED_APPS=[], USE_TZ=True)
    if not apps.ready:
        django.setup()
