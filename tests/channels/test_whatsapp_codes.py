import pytest

from channels.message import NotSent, Rejected, Unknown
from channels.whatsapp.codes import judge, judge_failed


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, 21211),
        (400, 21614),
        (400, 21212),
        (400, 21606),
        (400, 21603),
        (400, 21617),
        (400, 21658),
        (400, 21623),
        (400, 21656),
        (400, 21610),
        (400, 21408),
        (403, 21408),
        (400, 63016),
        (400, 99999),
        (400, None),
        (405, None),
    ],
)
def test_bad_data_is_refused_for_good(status: int, code: int | None) -> None:
    outcome = judge(status, code, "said", None)
    assert isinstance(outcome, Rejected)
    assert not outcome.tenant_fault


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, 20003),
        (401, None),
        (403, 20003),
        (403, None),
        (403, 20006),
        (404, 20404),
        (404, None),
        (400, 63007),
        (400, 63051),
    ],
)
def test_a_wrong_account_stops_the_tenants_channel(status: int, code: int | None) -> None:
    outcome = judge(status, code, "said", None)
    assert isinstance(outcome, Rejected)
    assert outcome.tenant_fault


@pytest.mark.parametrize(("status", "code"), [(429, 20429), (429, None), (429, 14107), (429, 63018)])
def test_a_busy_provider_is_tried_again_when_it_says(status: int, code: int | None) -> None:
    for retry_after in (None, 7.0):
        outcome = judge(status, code, "said", retry_after)
        assert isinstance(outcome, NotSent)
        assert outcome.retry_after == retry_after


def test_a_full_queue_is_given_a_minute() -> None:
    for retry_after, waited in ((None, 60.0), (1.0, 60.0), (90.0, 90.0)):
        outcome = judge(429, 21611, "said", retry_after)
        assert isinstance(outcome, NotSent)
        assert outcome.retry_after == waited


def test_the_daily_cap_is_not_a_short_wait() -> None:
    for retry_after, waited in ((None, 14400.0), (1.0, 14400.0), (50_000.0, 50_000.0)):
        outcome = judge(429, 63038, "said", retry_after)
        assert isinstance(outcome, NotSent)
        assert outcome.retry_after == waited


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, 20500), (500, 21211), (502, None), (503, 20429), (504, None), (408, None), (302, None), (0, None)],
)
def test_nobody_knows_after_a_failure_of_theirs(status: int, code: int | None) -> None:
    assert isinstance(judge(status, code, "said", 1.0), Unknown)


def test_a_reason_holds_the_code_and_what_was_said() -> None:
    assert judge(400, 21610, "Attempt to send to unsubscribed recipient", None).reason == (  # type: ignore[union-attr]
        "the customer has opted out (Twilio: error 21610, Attempt to send to unsubscribed recipient)"
    )


def test_a_message_that_failed_at_once_is_rejected_with_its_code() -> None:
    assert judge_failed(63016, "") == Rejected(
        "more than 24 hours have passed since the customer's last message (Twilio: error 63016)", code=63016
    )
    assert judge_failed(63007, "no channel") == Rejected(
        "the sender is not a WhatsApp sender of this Twilio account; mend that, and apply the tenant's file"
        " (Twilio: error 63007, no channel)",
        tenant_fault=True,
        code=63007,
    )
    assert judge_failed(None, "") == Rejected("Twilio took the message and then failed it")
