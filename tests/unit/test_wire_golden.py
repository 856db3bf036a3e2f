"""What Sidekiq 6.x, 7.x and 8.x leave in the server, as their own text: read with the same meaning, written back the
same byte for byte (wire format, sections 3, 6.5, 11 and 19)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from henchman.inspector.base import Entry
from henchman.inspector.processes import ProcessState, process_state
from henchman.store.leases import Record
from henchman.wire import payload, times
from henchman.wire.payload import sanitise

CREATED = 1795237848.964
#: error_backtrace of one test vector: strict Base64 as written from 7.2.1 on, broken into lines before
STRICT = "eJyLVkosKNDPyk8q1k/Kz8/VK6i0MjSyysxTKEgtSssvylXSASvIyUzSrwBJGoPkkhNzcpRiAV06E+Y="
MIME = "eJyLVkosKNDPyk8q1k/Kz8/VK6i0MjSyysxTKEgtSssvylXSASvIyUzSrwBJ\\nGoPkkhNzcpRiAV06E+Y=\\n"
LINES = ["app/jobs/boom.py:12:in perform", "app/lib/x.py:3:in call"]
_HEAD = '"args":[1,"two",{"three":3.0},null,[true]],"class":"OkJob","jid":"04a70de3aef9f2b882053b40"'
_ERROR = '"error_message":"boom é / \\"x\\"","error_class":"ArgumentError"'
_AJ = (
    '"wrapped":"MailJob","args":[{"job_class":"MailJob","job_id":"5f7fcd5c-2b0c-4ac2-9fc7-0d6c7e9a3b11",'
    '"provider_job_id":null,"queue_name":"mail","priority":null,"arguments":[{"_aj_globalid":"gid://app/User/7"},'
    '{"lang":"fr","_aj_ruby2_keywords":["lang"]}],"executions":0,"exception_executions":{},"locale":"en",'
    '"timezone":"UTC","enqueued_at":"2026-11-21T05:10:48.964Z"}]'
)

#: name → the text; each was created at the same moment
GOLDEN: Final[dict[str, str]] = {
    "6 queued": f'{{"retry":true,"queue":"default","tags":["alpha","b"],{_HEAD},"created_at":1795237848.964,'
    '"enqueued_at":1795237848.9650629}',
    "6 scheduled": f'{{"retry":true,"queue":"default",{_HEAD},"created_at":1795237848.964}}',
    "6 failed once": f'{{"retry":2,"queue":"low","backtrace":true,{_HEAD},"created_at":1795237848.964,'
    f'"enqueued_at":1795237848.965,{_ERROR},"failed_at":1795237849.5,"retry_count":0,"error_backtrace":"{MIME}"}}',
    "7 failed twice": f'{{"retry":true,"retry_for":3600,"retry_queue":"low","dead":false,{_HEAD},"queue":"low",'
    f'"created_at":1795237848.964,"enqueued_at":1795237868.1,{_ERROR},"failed_at":1795237849.5,"retry_count":1,'
    f'"retried_at":1795237869.25,"error_backtrace":"{STRICT}"}}',
    "7 with context": '{"retry":true,"queue":"default","cattr":{"user":7,"tenant":"é"},"locale":"fr",'
    f'"log_level":"debug",{_HEAD},"created_at":1795237848.964}}',
    "8 queued": f'{{"retry":true,"queue":"default","tags":["alpha","b"],{_HEAD},"created_at":1795237848964,'
    '"enqueued_at":1795237848965}',
    "8 failed twice": f'{{"retry":0,"queue":"default",{_HEAD},"created_at":1795237848964,"enqueued_at":1795237868100,'
    f'{_ERROR},"failed_at":1795237849500,"retry_count":1,"retried_at":1795237869250,"error_backtrace":"{STRICT}"}}',
    "8 with context": '{"retry":true,"queue":"default","cattr":[["user",{"_aj_globalid":"gid://app/User/7"}]],'
    f'"cattr_1":[],"profile":"","profiler_options":{{}},{_HEAD},"created_at":1795237848964}}',
    "8 requeued by 6": f'{{"retry":true,"queue":"default",{_HEAD},"created_at":1795237848964,'
    '"enqueued_at":1795237869.250001}',
    "Pro batch": f'{{"retry":true,"queue":"default","bid":"8oPwCj-7FfIARg",{_HEAD},"created_at":1795237848964}}',
    "Enterprise": '{"retry":true,"queue":"default","encrypt":true,"unique_for":600,"unique_until":"start",'
    f'"overrated":3,"expires_in":60.5,{_HEAD},"created_at":1795237848964}}',
    "ActiveJob 7": '{"retry":true,"queue":"mail","class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",'
    f'{_AJ},"jid":"04a70de3aef9f2b882053b40","created_at":1795237848.964,"enqueued_at":1795237848.965}}',
    "ActiveJob 8": f'{{"retry":true,"queue":"mail","class":"Sidekiq::ActiveJob::Wrapper",{_AJ},'
    '"jid":"04a70de3aef9f2b882053b40","created_at":1795237848964,"enqueued_at":1795237848965}',
    "big numbers": '{"retry":true,"queue":"default","class":"OkJob","args":[123456789012345678901234567890,-0.0,'
    '1e+16,0.00001,0.0001,9007199254740993],"jid":"04a70de3aef9f2b882053b40","created_at":1795237848.964}',
}


@pytest.mark.parametrize("name", GOLDEN)
def test_written_back_byte_for_byte(name: str) -> None:
    text = GOLDEN[name].encode()
    assert payload.encode(payload.decode(text)) == text


@pytest.mark.parametrize("name", GOLDEN)
def test_nothing_of_a_sound_payload_is_mended(name: str) -> None:
    assert not sanitise(payload.decode(GOLDEN[name].encode()))


@pytest.mark.parametrize("name", GOLDEN)
def test_read_with_the_same_meaning(name: str) -> None:
    job = json.loads(GOLDEN[name])
    entry = Entry(GOLDEN[name].encode())
    assert entry.problem == ""
    assert (entry.jid, entry.queue, entry.tags) == (job["jid"], job["queue"], job.get("tags", []))
    assert entry.time("created_at") == pytest.approx(CREATED, abs=0.0005)
    assert entry.name == ("MailJob" if "wrapped" in job else "OkJob")
    assert entry.attempts == (job["retry_count"] + 1 if "retry_count" in job else 0)
    if "failed_at" in job:
        assert entry.time("failed_at") == 1795237849.5
        assert entry.error == ("ArgumentError", 'boom é / "x"')
        assert entry.backtrace == LINES
    if "retried_at" in job:
        assert entry.time("retried_at") == 1795237869.25


def test_the_backtrace_of_the_test_vector() -> None:
    assert payload.compress_backtrace(LINES) == STRICT
    assert payload.expand_backtrace(STRICT) == payload.expand_backtrace(json.loads(f'"{MIME}"')) == LINES


@pytest.mark.parametrize(
    "value",
    [1795237848.964, 1795237848964, "1795237848.964", "2026-11-21T05:10:48.964Z", "2026-11-21T06:10:48.964+01:00"],
)
def test_one_moment_in_every_form(value: Any) -> None:
    assert times.read(value) == CREATED


def read_process(info: str, **facts: str) -> ProcessState:
    identity = json.loads(info)["identity"]
    record = {"info": info, "busy": "2", "beat": "1795237953.1041918", "rss": "27120", "rtt_us": "45"} | facts
    found = process_state(Record(identity, {name: value.encode() for name, value in record.items()}, {}))
    assert found is not None
    return found


INFO_6 = (
    '{"hostname":"vm","started_at":1795237870.3536925,"pid":21070,"tag":"mytag","concurrency":3,'
    '"queues":["default","low"],"labels":[],"identity":"vm:21070:bb812c0a5878"}'
)
INFO_7 = (
    '{"hostname":"vm","started_at":1795237870.3536925,"pid":21070,"tag":"mytag","concurrency":3,'
    '"queues":["default","low"],"weights":[{"default":2,"low":0}],"labels":["reliable"],"identity":"vm:21070:bb812c0a5878",'
    '"version":"7.3.10","embedded":true}'
)
INFO_8 = (
    '{"hostname":"vm","started_at":1795237943.097985,"pid":21728,"tag":"mytag","capsules":{"default":{"concurrency":3,'
    '"mode":"weighted","weights":{"default":2,"low":0}},"single":{"concurrency":1,"mode":"strict","weights":{"single":0}}},'
    '"queues":["default","low","single"],"weights":[{"default":2,"low":0},{"single":0}],"labels":[],'
    '"identity":"vm:21728:083cd4822b2f","version":"8.1.7","embedded":false}'
)


def test_processes_of_every_version_are_read() -> None:
    six = read_process(INFO_6, quiet="false")
    assert (six.concurrency, six.queues, six.version, six.embedded) == (3, ("default", "low"), "", False)
    assert (six.started_at, six.beat, six.rss_kb, six.rtt_us, six.busy) == (
        1795237870.3536925, 1795237953.1041918, 27120, 45, 2,
    )  # fmt: skip
    seven = read_process(INFO_7, quiet="true")
    assert (seven.concurrency, seven.labels, seven.version, seven.embedded) == (3, ("reliable",), "7.3.10", True)
    assert seven.quiet
    eight = read_process(INFO_8, concurrency="4")
    assert (eight.concurrency, eight.queues, eight.pid) == (4, ("default", "low", "single"), 21728)
    later = read_process(json.dumps({k: v for k, v in json.loads(INFO_8).items() if k != "queues"}), concurrency="4")
    assert later.queues == ("default", "low", "single"), "out of the capsules"
    assert not six.ours
