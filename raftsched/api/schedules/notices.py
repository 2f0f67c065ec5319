"""Convert the notices of a schedule, and what its owner expects of it, to what is stored, and back."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from raftsched import limits
from raftsched.api.http.json_reply import seconds_or_none
from raftsched.api.jobs.calls import url_fault
from raftsched.api.jobs.convert import check_placeholders, hook_of, shown_hook
from raftsched.api.json.times import span_ms
from raftsched.core.records.notices import Notice, NoticeEvent, NoticeForm, Watch
from raftsched.core.records.spec import Hook
from raftsched.errors import Invalid, TooLarge
from raftsched.wire.calls import HttpCall
from raftsched.wire.jobs import HookBody
from raftsched.wire.notices import EmailBody, NoticeBody
from raftsched.wire.schedules import ScheduleRequest

_NOTHING: Final = Watch()
_SLACK_BODY: Final = msgspec.Raw(b'{"text":"{{cause.summary}}"}')
_ADDRESS: Final = re.compile(r"[^\s@,;:<>()\"\[\]\\\x00-\x1f\x7f]+@[^\s@,;:<>()\"\[\]\\\x00-\x1f\x7f]+")


def watch_of(wanted: ScheduleRequest, prefix: str) -> Watch | None:
    """Return the notices and expectations to store; None if there are none.

    Raises `Malformed`, `TooLarge` or `Invalid` naming the field.
    """
    notices = tuple(_notice_of(body, f"{prefix}notify[{position}]") for position, body in enumerate(wanted.notify))
    if wanted.late_after_seconds is None and any(NoticeEvent.LATE in notice.events for notice in notices):
        field = f"{prefix}late_after_seconds"
        raise Invalid(f"{field}: is required if a notice is on late", field=field)
    if len(msgspec.msgpack.encode(notices)) > limits.NOTICES_BYTES_MAX:
        field = f"{prefix}notify"
        raise TooLarge(f"{field}: must be at most {limits.NOTICES_BYTES_MAX} bytes in all", field=field)
    watch = Watch(span_ms(wanted.expect_success_within_seconds), span_ms(wanted.late_after_seconds), notices)
    return None if watch == _NOTHING else watch


def _notice_of(body: NoticeBody, at: str) -> Notice:
    given = [form for form in NoticeForm if getattr(body, form.label) is not None]
    if len(given) != 1:
        field = f"{at}.{given[1].label}" if given else at
        raise Invalid(f"{field}: give exactly one of webhook, slack, email and job", field=field)
    events = tuple(NoticeEvent[name.upper()] for name in body.on)
    if len(set(events)) < len(events):
        raise Invalid(f"{at}.on: names an event twice", field=f"{at}.on")
    form = given[0]
    return Notice(tuple(sorted(events)), form, _hook_of(body, form, f"{at}.{form.label}"))


def _hook_of(body: NoticeBody, form: NoticeForm, at: str) -> Hook:
    match form:
        case NoticeForm.WEBHOOK:
            job = HookBody(name=form.label, http=_call(body.webhook, at))
        case NoticeForm.SLACK:
            job = HookBody(name=form.label, http=msgspec.structs.replace(_call(body.slack, at), body=_SLACK_BODY))
        case NoticeForm.EMAIL:
            assert body.email is not None
            job = HookBody(name=form.label, payload=_email_payload(body.email, at))
        case NoticeForm.JOB:
            assert body.job is not None
            job = body.job
    hook = hook_of(job, f"{at}.")
    assert hook is not None
    return hook


def _call(url: str | None, at: str) -> HttpCall:
    assert url is not None
    if fault := url_fault(url):
        raise Invalid(f"{at}: {fault}", field=at)
    return HttpCall(url)


def _email_payload(email: EmailBody, at: str) -> msgspec.Raw:
    for position, address in enumerate(email.to):
        if not _ADDRESS.fullmatch(address):
            field = f"{at}.to[{position}]"
            raise Invalid(f"{field}: must be an e-mail address without a name, such as ops@example.com", field=field)
    if not email.subject.isprintable():
        raise Invalid(f"{at}.subject: must be one line of printable characters", field=f"{at}.subject")
    payload = msgspec.json.encode({"to": email.to, "subject": email.subject})
    check_placeholders(payload, f"{at}.subject")
    return msgspec.Raw(payload)


# -- back to a document -----------------------------------------------------------------------------------------------


def watch_document(watch: Watch | None) -> dict[str, Any]:
    """Return the fields of a schedule's document."""
    watch = watch or _NOTHING
    return {
        "expect_success_within_seconds": seconds_or_none(watch.success_within_ms),
        "late_after_seconds": seconds_or_none(watch.late_after_ms),
        "notify": [_notice_document(notice) for notice in watch.notices],
    }


def _notice_document(notice: Notice) -> dict[str, Any]:
    return {"on": [event.label for event in notice.events], notice.form.label: _shown(notice)}


def _shown(notice: Notice) -> Any:
    match notice.form:
        case NoticeForm.WEBHOOK | NoticeForm.SLACK:
            options = notice.hook.spec.options
            assert options is not None
            assert options.call is not None
            return json.loads(options.call.text)["url"]
        case NoticeForm.EMAIL:
            return json.loads(notice.hook.payload)
        case NoticeForm.JOB:
            return shown_hook(notice.hook)
