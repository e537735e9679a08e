"""The webhook of these tests, before and after its start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.webhook.stage import WebhookStage
from tests.waiting import wait_until


@pytest.fixture
def stage() -> Iterator[WebhookStage]:
    made = WebhookStage()
    yield made
    made.webhook.stop()


@pytest.fixture
def started(stage: WebhookStage) -> WebhookStage:
    assert not stage.webhook.is_ready()
    assert 503 == stage.client.get("/readyz").status_code
    stage.webhook.start()
    wait_until(stage.webhook.is_ready)
    return stage
