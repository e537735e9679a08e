"""What docs/gitops.md promises to those who leave the chart to Argo CD or Flux: these apply again and again what is
rendered, and run the hooks that they know."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.cache import REPOSITORY
from tests.helm.chart import Helm, documents_of, with_image
from tests.helm.combinations import COMBINATIONS
from tests.unit.pages import yaml_blocks

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
HOOK = "helm.sh/hook"


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_same_values_render_the_same_objects_and_none_that_the_leader_writes(helm: Helm, name: str) -> None:
    """Of the webhook configurations a list without entries: applying it takes no entry away, and no caBundle. Hooks are
    those of the page, and Helm's alone."""
    found = helm.objects(COMBINATIONS[name])
    assert found == documents_of(helm.template(with_image(COMBINATIONS[name])).stdout)
    assert {"Secret", "Lease", "EndpointSlice"}.isdisjoint(one["kind"] for one in found)
    ours = [one for one in found if one["kind"] in CONFIGURATIONS]
    assert [{"apiVersion", "kind", "metadata", "webhooks"}] * 2 == [set(one) for one in ours]
    assert [[], []] == [one["webhooks"] for one in ours]
    assert "caBundle" not in yaml.safe_dump(found)

    annotations = [one["metadata"].get("annotations") or {} for one in found]
    hook = COMBINATIONS[name].get("uninstall", {}).get("hook", True)
    assert {"test"} | ({"pre-delete"} if hook else set()) == {one[HOOK] for one in annotations if HOOK in one}
    assert [] == [key for one in annotations for key in one if "argoproj" in key or "fluxcd" in key]


def test_the_page_ignores_what_the_chart_renders(helm: Helm) -> None:
    blocks = [yaml.safe_load(block) for block in yaml_blocks((REPOSITORY / "docs" / "gitops.md").read_text())]
    (ignored,) = [
        block["spec"]["ignoreDifferences"] for block in blocks if "ignoreDifferences" in block.get("spec", {})
    ]
    rendered = {(one["kind"], one["metadata"]["name"]) for one in helm.objects({})}
    assert set(CONFIGURATIONS) == {one["kind"] for one in ignored}
    for one in ignored:
        assert (one["kind"], one["name"]) in rendered
        assert ("admissionregistration.k8s.io", ["/webhooks"]) == (one["group"], one["jsonPointers"])
