"""Which [[send]] rule covers a schedule."""

import pytest

from gate.rules import DEFAULT_POLICY, GRACE_SECONDS, SendPolicy, SendRule, policies

A, B, C = (SendPolicy(deadline=float(number)) for number in range(3))


def test_without_rules_every_schedule_has_the_defaults() -> None:
    policy = policies(())
    assert policy("nightly") is DEFAULT_POLICY
    assert SendPolicy(on_doubt="skip", deadline=None, grace=GRACE_SECONDS) == DEFAULT_POLICY


def test_the_first_rule_that_covers_a_schedule_decides() -> None:
    policy = policies(
        (
            SendRule(schedules=("reports:daily",), policy=A),
            SendRule(schedules=("reports:*", "mail:?"), policy=B),
            SendRule(schedules=("*",), policy=C),
        )
    )
    assert [policy(name) for name in ("reports:daily", "reports:weekly", "mail:1", "mail:12", "other")] == [
        A,
        B,
        B,
        C,
        C,
    ]


@pytest.mark.parametrize(
    ("glob", "covers", "leaves"),
    [
        ("nightly", ["nightly"], ["nightly2", "xnightly", "Nightly", "nightly\n", ""]),
        ("*", ["", "a", "a\nb", "é"], []),
        ("a?c", ["abc", "a.c", "a\nc"], ["ac", "abbc"]),
        ("[ab]c", ["ac", "bc"], ["cc", "[ab]c"]),
        ("[!a]c", ["bc"], ["ac"]),
        ("a.c", ["a.c"], ["abc"]),
        ("a|b", ["a|b"], ["a", "b"]),
        ("(a", ["(a"], ["a"]),
        ("^a$", ["^a$"], ["a"]),
    ],
)
def test_globs_cover_whole_names_and_mind_the_case(glob: str, covers: list[str], leaves: list[str]) -> None:
    policy = policies((SendRule(schedules=(glob,), policy=A),))
    assert [name for name in covers if policy(name) is not A] == []
    assert [name for name in leaves if policy(name) is A] == []


def test_any_of_a_rules_globs_is_enough_and_none_reaches_into_the_next() -> None:
    policy = policies((SendRule(schedules=("a", "b*"), policy=A), SendRule(schedules=("c", "a*"), policy=B)))
    assert [policy(name) for name in ("a", "bc", "c", "ab", "cb")] == [A, A, B, B, DEFAULT_POLICY]


def test_what_is_remembered_stays_right_for_more_schedules_than_are_remembered() -> None:
    policy = policies((SendRule(schedules=("*7",), policy=A),))
    for _ in range(2):
        for number in range(5000):
            assert policy(f"s{number}") is (A if number % 10 == 7 else DEFAULT_POLICY)
