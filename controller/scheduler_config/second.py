"""A second kube-scheduler in the cluster, as one file for `kubectl apply`: for clusters whose own one nobody may
configure, and for pods that are meant to be placed by a scheduler of another name."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import PurePosixPath
from string import Template
from typing import Final

from controller.scheduler_config.options import Options

PORT: Final = 10259


_DEPLOYMENT: Final = Template("""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $name
  namespace: $namespace
  labels: &labels
    app.kubernetes.io/name: $name
spec:
  replicas: $replicas
$strategy  selector:
    matchLabels: *labels
  template:
    metadata:
      labels: *labels
      annotations:
        # The configuration is read only at start, so a change of it replaces the pods.
        checksum/configuration: $checksum
    spec:
      serviceAccountName: $name
      priorityClassName: system-cluster-critical
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: *labels
      containers:
        - name: kube-scheduler
          # The version of the cluster's API server, or one minor version older.
          image: $image
          command: [kube-scheduler, --config=$path, --secure-port=$port]
          ports:
            - name: https
              containerPort: $port
          startupProbe:
            httpGet: {path: /livez, port: https, scheme: HTTPS}
            failureThreshold: 24
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /livez, port: https, scheme: HTTPS}
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: https, scheme: HTTPS}
          resources:
            requests: {cpu: 100m, memory: 128Mi}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - name: configuration
              mountPath: $folder
              readOnly: true
      volumes:
        - name: configuration
          secret:
            secretName: $name
            defaultMode: 0440
""")


def manifest(options: Options, config: str) -> str:
    """ServiceAccount, rights, the configuration in a Secret, Deployment; `config` goes in as it is."""
    documents = (
        _account(options),
        *(_cluster_role_binding(options, role) for role in ("kube-scheduler", "volume-scheduler")),
        _lookups(options),
        _lease(options),
        _secret(options, config),
        _deployment(options, config),
    )
    return "---\n".join(documents)


def _account(options: Options) -> str:
    name, namespace = options.scheduler_name, options.namespace
    return f"""\
# A second kube-scheduler, for the pods with schedulerName: {name} and no others.
# Apply this file with kubectl apply -f, and apply it again after each change.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {name}
  namespace: {namespace}
"""


def _subjects(options: Options) -> str:
    return f"""\
subjects:
  - kind: ServiceAccount
    name: {options.scheduler_name}
    namespace: {options.namespace}
"""


def _cluster_role_binding(options: Options, role: str) -> str:
    return f"""\
# The same rights as the cluster's own kube-scheduler: Kubernetes keeps the role up to date with its version.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {options.scheduler_name}-{role}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:{role}
{_subjects(options)}"""


def _lookups(options: Options) -> str:
    return f"""\
# It looks up who may read its metrics as the cluster's own kube-scheduler does.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {options.scheduler_name}-authentication-reader
  namespace: kube-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
{_subjects(options)}"""


def _lease(options: Options) -> str:
    name, namespace = options.scheduler_name, options.namespace
    return f"""\
# Its own Lease: the role above names that of the cluster's kube-scheduler only. (It grants create.)
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {name}
  namespace: {namespace}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{name}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {name}
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {name}
{_subjects(options)}"""


def _secret(options: Options, config: str) -> str:
    file = PurePosixPath(options.path).name
    return f"""\
# A Secret and not a ConfigMap: with HTTPS it holds a private key.
apiVersion: v1
kind: Secret
metadata:
  name: {options.scheduler_name}
  namespace: {options.namespace}
stringData:
  {file}: |
{textwrap.indent(config, "    ")}"""


def _deployment(options: Options, config: str) -> str:
    path = PurePosixPath(options.path)
    elects = options.leader_elect is not False
    return _DEPLOYMENT.substitute(
        name=options.scheduler_name,
        namespace=options.namespace,
        replicas=2 if elects else 1,
        strategy="" if elects else "  strategy: {type: Recreate}   # two at once would place the same pods\n",
        checksum=hashlib.sha256(config.encode()).hexdigest(),
        image=options.image,
        path=path,
        folder=path.parent,
        port=PORT,
    )
