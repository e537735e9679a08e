"""Every label, annotation, resource and driver name that the product reads or writes, in one place."""

from __future__ import annotations

from typing import Final

EXTENDER_RESOURCE: Final = "longhorn.io/scheduler-extender"
"""Flag resource: a pod that asks for it is sent to the extender (`managedResources`)."""

LONGHORN_GROUP: Final = "longhorn.io"
LONGHORN_VERSION: Final = "v1beta2"
LONGHORN_DRIVER: Final = "driver.longhorn.io"
LONGHORN_RETIRED_DRIVER: Final = "io.rancher.longhorn"
LONGHORN_DRIVERS: Final = frozenset({LONGHORN_DRIVER, LONGHORN_RETIRED_DRIVER})

SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS_ANNOTATION: Final = "storageclass.kubernetes.io/is-default-class"
DEFAULT_CLASS_BETA_ANNOTATION: Final = "storageclass.beta.kubernetes.io/is-default-class"
CLASS_BETA_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"

DEFAULT_SCHEDULER: Final = "default-scheduler"
SECOND_SCHEDULER: Final = "longhorn-scheduler"
"""The name that a second kube-scheduler gets, beside the cluster's own, unless it is given another one."""
SCHEDULER_NAMES: Final = f"{DEFAULT_SCHEDULER},{SECOND_SCHEDULER}"

WAKE_CONDITION: Final = "scheduling.longhorn.io/RoomAvailable"
"""Pod condition that the leader patches so that kube-scheduler looks at a refused pod again."""

WAKE_ANNOTATION: Final = "scheduling.longhorn.io/woken-at"
"""The annotation form of the wake-up, for schedulers without queueing hints."""

SETTLED_ANNOTATION: Final = "scheduling.longhorn.io/settled"
"""On the Lease: the term whose holder let go of it, and left nothing behind that is not stored."""

ALLOCATION_GROUP: Final = "scheduling.longhorn.io"
ALLOCATION_VERSION: Final = "v1alpha1"

WRITTEN_OVER_ANNOTATION: Final = "scheduling.longhorn.io/written-over"
"""On what carries a record of allocations: the version that the leader last wrote over without another change."""

CANARY_LABEL: Final = "scheduling.longhorn.io/canary"
"""On the pods by which the leader finds out whether kube-scheduler asks the extender."""

GROWTH_CHECK_LABEL: Final = "scheduling.longhorn.io/growth-check"
"""On a pod that is never made: its dry run shows whether the review of a growth reaches the leader. It is denied, with
one of the next two in the text."""

LEADER_ANSWERS: Final = "the leader answers the webhook"
LEADER_IS_SILENT: Final = "the leader does not answer the webhook"

DISABLE_V2_LABEL: Final = "node.longhorn.io/disable-v2-data-engine"
"""On a Kubernetes node, `true`: no replica of a v2 volume goes there."""

OPT_IN_MARK: Final = "scheduling.longhorn.io/opt-in"
"""Label or annotation of a pod or a namespace: `false` keeps its pods away from the extender, `true` asks for it where
only marked pods are opted in. A pod's own word stands before its namespace's."""

STATUS_CONFIG_MAP: Final = "longhorn-scheduler-extender-status"
"""Tells callers of the status port whom they reach there: the leader's address, and the authorities of its
certificate."""

MUTATING_CONFIGURATION: Final = "zz-longhorn-scheduler-extender"
"""The API server runs mutating webhooks in the order of their configurations' names. Ours comes after those that choose
a pod's scheduler or give it volumes: what it decides by is final then."""

FORMER_MUTATING_CONFIGURATIONS: Final = ("longhorn-scheduler-extender",)
"""What earlier releases called it."""

VALIDATING_CONFIGURATION: Final = "longhorn-scheduler-extender"

SHARE_MANAGER: Final = "share-manager"
COMPONENT_LABEL: Final = "longhorn.io/component"
SHARED_VOLUME_LABEL: Final = "longhorn.io/share-manager"
"""On Longhorn's share-manager pods: what they are, and the volume that they serve."""

MIGRATION_LABEL: Final = "kubevirt.io/migrationJobUID"
"""On the pod that a virtual machine is to migrate to: it has to leave its node."""

CO_SCHEDULE_ANNOTATION: Final = "kubevirt-scheduler/co-schedule"
"""`true`: the pod runs where the share-manager of its shared volume runs."""

GATE: Final = "longhorn-scheduler-extender-gate"
"""The policy by which nobody but the leader gives a Replica its first node, its binding, and the ServiceAccount that
tells it of the leader."""

FENCE: Final = "longhorn-scheduler-extender-fence"
"""The policy, and its binding, by which our account writes Replicas only under the name of the present term."""

GUARD: Final = "longhorn-scheduler-extender-placement"
"""The policy, and its binding, by which our account changes nothing of a Replica but its first place and its marks."""

TERM_ANNOTATION: Final = "scheduling.longhorn.io/term"
"""On the gate's account: the leader's term, at most 60 of the characters A-Z, a-z, 0-9, `.`, `_` and `-`. On the
ConfigMaps with plans: the term of who wrote it last, and a random part, which makes every load a change."""

SINCE_ANNOTATION: Final = "scheduling.longhorn.io/since"
"""On the gate's account: when the term began, by the API server's clock, as in `2026-01-31T12:00:00Z`."""

RENEWED_ANNOTATION: Final = "scheduling.longhorn.io/renewed"
"""On the gate's account: when the leader was last alive, as above."""

HELD_ANNOTATION: Final = "scheduling.longhorn.io/held"
"""On a Replica without a node: the leader keeps it for as long as it leads."""

LEFT_ANNOTATION: Final = "scheduling.longhorn.io/left"
"""On a Replica without a node: the leader leaves it to Longhorn."""

MANAGER_PREFIX: Final = "longhorn-scheduler-extender-"
"""The field manager of the leader's writes of Replicas is this and the term."""

PROOF_MANAGER: Final = "longhorn-scheduler-extender-proof"
"""The field manager of a dry run by which the leader proves that the gate refuses others."""
