"""Whether reviews of growth reach the leader: who is told, and when nothing is known of it."""

from __future__ import annotations

import pytest

from controller.admission.growth_path import AGAIN_SECONDS, EVERY_SECONDS, TELL_AFTER, GrowthPath, reaches_leader
from controller.errors import ClusterError, ForbiddenError, UnavailableError
from controller.kube.resources import Resource
from controller.model.names import LEADER_ANSWERS, LEADER_IS_SILENT
from tests.fakes.apiserver import FakeApiServer

ANSWERS = ForbiddenError(f"403: admission webhook denied the request: {LEADER_ANSWERS}")
SILENT = ForbiddenError(f"403: admission webhook denied the request: {LEADER_IS_SILENT}")
FOREIGN = ForbiddenError("403: another webhook denied the request: no pods today")
AWAY = UnavailableError("503")


class Asking:
    """An API server on whose webhooks' words the test decides; None: it asks none."""

    def __init__(self) -> None:
        self.server, self.says, self.is_asked = FakeApiServer(), SILENT, True
        self.server.fail = self._fail
        self.told = list[tuple[str, bool]]()
        self.path = GrowthPath(self.server, "ns", lambda: self.is_asked, self._tell)

    says: ClusterError | None

    def _fail(self, _verb: str, _resource: Resource) -> None:
        if self.says is not None:
            raise self.says

    def _tell(self, reason: str, text: str, is_warning: bool) -> None:
        assert "9505" in text or not is_warning
        self.told.append((reason, is_warning))

    def look(self, *says: ClusterError | None) -> list[float]:
        found = []
        for self.says in says:
            found.append(self.path.run_once())
        return found


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_it_is_told_once_that_the_leader_is_silent_and_once_that_it_answers(asking: Asking) -> None:
    assert [AGAIN_SECONDS] * TELL_AFTER == asking.look(*[SILENT] * TELL_AFTER)
    assert [("GrowthUnchecked", True)] == asking.told
    asking.look(SILENT)
    assert (1, True) == (len(asking.told), "9505" in asking.path.problem)
    assert [EVERY_SECONDS] * 2 == asking.look(ANSWERS, ANSWERS)
    assert [("GrowthUnchecked", True), ("GrowthChecked", False)] == asking.told
    assert "" == asking.path.problem


@pytest.mark.parametrize("between", [ANSWERS, FOREIGN, AWAY, None], ids=str)
def test_a_silence_that_does_not_last_or_is_not_known_is_not_told(asking: Asking, between: ClusterError | None) -> None:
    asking.look(*[SILENT] * (TELL_AFTER - 1), between, SILENT)
    assert ([], "") == (asking.told, asking.path.problem)


def test_who_does_not_lead_or_has_no_entry_asks_nobody(asking: Asking) -> None:
    asking.look(*[SILENT] * (TELL_AFTER - 1))
    asking.is_asked = False
    asking.look(SILENT)
    asking.is_asked = True
    asking.look(SILENT)
    assert [] == asking.told


def test_the_answer_is_who_denied_the_pod_which_is_never_stored(asking: Asking) -> None:
    asking.says = None
    assert reaches_leader(asking.server, "ns") is None
    assert not asking.server.objects
    for said, expected in ((ANSWERS, True), (SILENT, False)):
        asking.says = said
        assert reaches_leader(asking.server, "ns") is expected
    asking.says = FOREIGN
    with pytest.raises(ForbiddenError, match="no pods today"):
        reaches_leader(asking.server, "ns")
