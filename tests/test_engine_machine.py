"""Peers that come and go, a store that fails before or after it has written, restarts: nobody is told to send what
another may have sent, and in the end nothing is left.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gate.rules import SendPolicy
from tests.support.engine import Asking, Peer, World

LEASE, GRACE, RETRY = 30.0, 2.0, 1.0
schedules = st.sampled_from(["a", "b"])


class EngineMachine(RuleBasedStateMachine):
    """With `on_doubt = "skip"`, the one policy under which a second send must never happen by itself."""

    peers = Bundle("peers")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SendPolicy(grace=GRACE))
        self.alive: set[Peer] = set()
        self.calls: list[tuple[Peer, str, str, Asking]] = []
        """Every claim: who asked, for what, with which token, and what was answered so far."""
        self.told: dict[str, str] = {}
        """The token that was told to send a schedule."""
        self.told_ever: set[str] = set()
        self.free: set[str] = set()
        """Schedules whose sender gave them back, or was gone before it could read that it may send."""
        self.confirmed: set[str] = set()
        self.count = 0

    @rule(target=peers)
    def connect(self) -> Peer:
        peer = self.world.peer()
        self.alive.add(peer)
        return peer

    @rule(target=claims, peer=peers, schedule=schedules, more=st.booleans())
    def claim(self, peer: Peer, schedule: str, more: bool) -> tuple[str, str]:
        self.count += 1
        token = f"token {self.count}"
        self.ask(peer, schedule, token, more=more)
        return schedule, token

    @rule(peer=peers, claim=claims, more=st.booleans())
    def ask_again(self, peer: Peer, claim: tuple[str, str], more: bool) -> None:
        self.ask(peer, *claim, more=more)

    def ask(self, peer: Peer, schedule: str, token: str, *, more: bool) -> None:
        if peer in self.alive:
            self.calls.append((peer, schedule, token, peer.ask(schedule, token=token, more=more)))

    @rule(peer=peers, claim=claims)
    def confirm(self, peer: Peer, claim: tuple[str, str]) -> None:
        if peer in self.alive and peer.confirm(claim[1]) == "Done":
            self.confirmed.add(claim[0])

    @rule(peer=peers, claim=claims)
    def release(self, peer: Peer, claim: tuple[str, str]) -> None:
        if peer in self.alive:
            peer.release(claim[1])  # though the store says that it failed, it may have been written
            if self.told.get(claim[0]) == claim[1]:
                self.free.add(claim[0])

    @rule(peer=consumes(peers), unread=st.booleans())
    def hang_up(self, peer: Peer, unread: bool) -> None:
        if peer not in self.alive:
            return
        self.alive.discard(peer)
        answers = [
            (schedule, token) for who, schedule, token, call in self.calls if who is peer and "send" in call.said
        ]
        others = {token for who, _, token, call in self.calls if who is not peer and "send" in call.said}
        if unread:
            self.free |= {s for s, token in answers if self.told.get(s) == token and token not in others}
        peer.hang_up(unread=unread)

    @rule(seconds=st.sampled_from([0.5, RETRY, GRACE, LEASE]))
    def wait(self, seconds: float) -> None:
        self.world.move(seconds)

    @rule(fault=st.sampled_from(["", "before", "after"]))
    def store(self, fault: str) -> None:
        self.world.store.fault = fault

    @rule()
    def restart(self) -> None:
        """The gate is killed and starts again; every connection is gone."""
        for peer in self.alive:
            peer.closed = True
        self.alive.clear()
        self.world.begin()

    @rule(claim=claims)
    def resend(self, claim: tuple[str, str]) -> None:
        if self.world.state(claim[0]) == "doubt":
            self.world.peer().resend(claim[0])
            self.free.add(claim[0])

    @invariant()
    def nobody_is_told_to_send_what_another_may_have_sent(self) -> None:
        for schedule in ("a", "b"):
            told = [token for _, name, token, call in self.calls if name == schedule and "send" in call.said]
            new = [token for token in dict.fromkeys(told) if token not in self.told_ever]
            for token in new:
                assert schedule not in self.confirmed, "sent stays sent"
                assert schedule not in self.told or schedule in self.free, "never two sends"
                self.told[schedule] = token
                self.free.discard(schedule)
            self.told_ever.update(new)

    def teardown(self) -> None:
        self.world.store.fault = ""
        peer = self.world.peer()
        peer.claim("last", token="last")
        peer.confirm("last")
        for _ in range(1 + len(self.calls)):  # a call that still waits with the token of a claim renews it once
            self.world.move(LEASE + GRACE + RETRY)
        assert self.world.store.open_claims() == [], "every claim ends"
        assert self.world.alarms == 0
        assert not [call.said for who, _, _, call in self.calls if who in self.alive and call.open], "nobody waits"
        for peer in self.alive:
            assert peer.claims == set()
            assert not peer.waits


EngineMachine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 6 // 10,  # type: ignore[union-attr]
    stateful_step_count=40,
    report_multiple_bugs=False,
)
TestEngine = EngineMachine.TestCase
