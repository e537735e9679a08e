"""The policies and bindings by which only the leader places, as the API server should have them.

The chart installs the policies; the leader knows their digests, and so whether the stored ones are of its own version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from controller.model.names import FENCE, GATE, GUARD

SILENT_SECONDS: Final = 45
"""The gate opens when the leader has not renewed it for longer. The number is part of its policy, too."""

# By `digest_of`, of this version's policies. A test compares them with the manifest.
POLICY_DIGESTS: Final[Mapping[str, str]] = {
    GATE: "8f370dd41e18212be96ce354e9844e6ade46953e32f6eb4448ea3be29e170324",
    FENCE: "a8801714c687d62a7c0adcd555611f2efdd11a890d41f8040df20a3cdc9bb972",
    GUARD: "b48fbf02ae0c6e947dab63f8a60f4b75f87b53b4eae2a84418f3d81986d433bc",
}
# Fields that the API server adds by itself.
DEFAULTS: Final = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
}

Spec = Mapping[str, Any]


class Enforcement(StrEnum):
    """What the API server does when others place a Replica: the action of the gate's binding."""

    DENY = "Deny"
    AUDIT = "Audit"  # it lets them, and notes it in its audit log
    NONE = ""  # it lets them: there is no binding


def expected_bindings(namespace: str, wanted: Enforcement = Enforcement.DENY) -> Mapping[str, Spec]:
    """The spec of each binding, by name. `wanted`: for the gate's."""
    reference = {"name": GATE, "namespace": namespace, "parameterNotFoundAction": "Allow"}
    denies = [Enforcement.DENY.value]
    return {
        GATE: {"policyName": GATE, "validationActions": [wanted.value], "paramRef": reference},
        FENCE: {"policyName": FENCE, "validationActions": denies, "paramRef": reference},
        GUARD: {"policyName": GUARD, "validationActions": denies},
    }


def digest_of(spec: Spec, user: str) -> str:
    """The digest of a policy's spec, the same whoever the leader's `user` is, and whatever the API server has added."""
    text = json.dumps(without_defaults(spec), sort_keys=True)
    return hashlib.sha256(text.replace(user, "\0").encode()).hexdigest()  # no JSON has a NUL


def without_defaults(raw: Any) -> object:
    """The same value without fields that the API server adds by itself."""
    if isinstance(raw, Mapping):
        kept = {key: value for key, value in raw.items() if key not in DEFAULTS or value != DEFAULTS[key]}
        return {key: without_defaults(value) for key, value in kept.items()}
    return [without_defaults(one) for one in raw] if isinstance(raw, list) else raw
