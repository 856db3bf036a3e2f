"""The console within the admin of a project, and what the system checks say."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from support.django_project import Project

pytestmark = pytest.mark.frameworks("it runs projects of Django as processes")

PUSH = "@app.job\ndef charge(order): ...\n"
VISIT = """
import asyncio, json, re
from django.contrib.auth.models import Permission, User
from django.test import AsyncClient, Client
from orders.jobs import charge

AT = "/admin/henchman/backgroundjob/"
jid = charge.enqueue(17).jid

def person(name, *codenames, staff=True):
    user = User.objects.create_user(name, password="x", is_staff=staff)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client = Client(headers={"origin": "http://testserver"})
    client.force_login(user)
    return client

def page(client, path=""):
    answer = client.get(AT + path)
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return [answer.status_code, body.decode()]

acts, looks = person("ann", "change_backgroundjob", "view_backgroundjob"), person("bob", "view_backgroundjob")
nobody, customer = person("cy"), person("dan", "change_backgroundjob", staff=False)
said = {
    "index": [AT in page.content.decode() for page in (one.get("/admin/") for one in (acts, looks, nobody))],
    "pages": [page(acts)[0], page(looks)[0], page(nobody)[0], page(customer)[0], Client().get(AT).status_code],
    "queue": jid in page(looks, "queues/default")[1],
    "missing": page(acts, "no/such")[0],
}
form = re.search(r'data-token="([^"]+)"', page(acts, "queues/default")[1])[1]
PAUSE = AT + "queues/default/do/pause"
from urllib.parse import urlencode
def post(client, token, **headers):
    answer = client.post(PAUSE, urlencode({"token": token}), "application/x-www-form-urlencoded", headers=headers)
    return answer.status_code
said["posts"] = [post(acts, form), post(looks, form), post(acts, "wrong"), post(acts, form, origin="http://elsewhere")]
said["audit"] = "ann" in page(acts, "audit")[1]
said["asset"] = page(acts, re.search(r'href="[^"]*backgroundjob/(static/[^"]+css)"', page(acts)[1])[1])[0]
async def awaited():
    client = AsyncClient()
    await client.aforce_login(await User.objects.aget(username="ann"))
    answer = await client.get(AT)
    return answer.status_code
said["asgi"] = asyncio.run(awaited())
print(json.dumps(said))
"""


def test_staff_look_and_act_by_permission(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    project = Project(tmp_path, redis_url, "ALLOWED_HOSTS = ['*']", jobs=PUSH)
    project.manage("migrate")
    said = project.shell(VISIT)
    assert said["index"] == [True, True, False]
    assert said["pages"] == [200, 200, 403, 302, 302]
    assert said["queue"]
    assert said["missing"] == 404
    assert said["posts"] == [303, 403, 403, 403]
    assert (said["audit"], said["asset"], said["asgi"]) == (True, 200, 200)
    assert redis.smembers("paused") == {b"default"}


class TestChecks:
    POOL = "DATABASES['default'] |= {'ENGINE': 'django.db.backends.postgresql', 'OPTIONS': {'pool': True}}"

    def test_a_sound_project_has_nothing_to_hear(self, tmp_path: Path, redis_url: str) -> None:
        project = Project(tmp_path, redis_url, jobs=PUSH)
        assert "no issues" in project.manage("check")

    def test_pools(self, tmp_path: Path, redis_url: str) -> None:
        age = "DATABASES['default']['CONN_MAX_AGE'] = 60"
        project = Project(tmp_path, redis_url, self.POOL, age, jobs=PUSH)
        said = project.manage("check", status=1)
        assert "henchman.E001" in said
        assert "A worker has 10 slots, and the pool of database 'default' 4 connections" in said
        assert "henchman.E001" in project.manage("henchman", "work", status=1)

    def test_outbox(self, tmp_path: Path, redis_url: str) -> None:
        other = "DATABASES['other'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'other'}"
        outbox = "HENCHMAN = {'outbox': 'sqlite:///shop.sqlite'}"
        project = Project(tmp_path, redis_url, other, outbox, jobs=PUSH)
        said = project.manage("check")
        assert "henchman.W002" in said
        assert "henchman.W003" in said
        with (project.folder / "shop" / "settings.py").open("a") as file:
            file.write("INSTALLED_APPS.append('henchman.outbox')\n")
        said = project.manage("check", "--database", "default")
        assert "henchman.W002" not in said
        assert "has no table henchman_outbox" in said
        project.manage("migrate")
        assert "henchman.W004" not in project.manage("check", "--database", "default")
