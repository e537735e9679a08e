"""Values of the chart that are tried together, those of its `ci` folder among them; all together say every value."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.helm.chart import CHART

Values = dict[str, Any]
DIGEST: Final = "sha256:" + "0123456789abcdef" * 4

_SCHEDULING: Final[Values] = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "storage", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "system-node-critical",
    "podDisruptionBudget": {"minAvailable": "50%"},
    "dnsPolicy": "None",
    "dnsConfig": {
        "nameservers": ["192.0.2.53"],
        "searches": ["example.com"],
        "options": [{"name": "ndots", "value": "1"}],
    },
    "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["proxy.example.com"]}],
    "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
    "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/authorities", "readOnly": True}],
    "podSecurityContext": {"fsGroup": 7, "supplementalGroups": [8]},
    "securityContext": {"runAsUser": 1000770000},
    "podLabels": {"team": "storage"},
    "podAnnotations": {"example.com/about": "a pod"},
    "terminationGracePeriodSeconds": 45,
    "replicas": 3,
    "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
}
_PROGRAM: Final[Values] = {
    **_SCHEDULING,
    "extraArgs": ["--threads=8"],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraContainers": [
        {
            "name": "beside",
            "image": "registry.example.com/beside:1",
            "imagePullPolicy": "Always",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    "livenessProbe": {"timeoutSeconds": 5},
    "readinessProbe": {"timeoutSeconds": 5},
}

COMBINATIONS: dict[str, Values] = {
    "defaults": {},
    "pods": {
        "image": {"repository": "lse", "digest": DIGEST, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "regcred"}],
        "podSecurityContext": {"runAsUser": 1000, "runAsGroup": None, "fsGroupChangePolicy": "OnRootMismatch"},
        "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
        "global": {"imagePullSecrets": [{"name": "other"}]},
        "commonLabels": {"example.com/owner": "storage"},
        "commonAnnotations": {"example.com/contact": "storage@example.com"},
        "serviceAccount": {"annotations": {"example.com/role": "extender"}},
        "controller": _PROGRAM,
        "webhook": _PROGRAM,
        "requireLonghorn": False,
        "secondScheduler": {**_SCHEDULING, "enabled": True, "image": {"digest": DIGEST, "repository": "scheduler"}},
        "uninstall": {"podLabels": {"team": "storage"}, "podAnnotations": {"example.com/why": "end"}},
        "test": {"podLabels": {"team": "storage"}, "podAnnotations": {"example.com/why": "check"}},
    },
    "control planes": {
        "image": {"registry": ""},
        "global": {"imageRegistry": "registry.example.com:5000/mirror"},
        "controller": {"controlPlane": "required", "podDisruptionBudget": {"enabled": False}},
        "webhook": {"controlPlane": "preferred", "podDisruptionBudget": {"maxUnavailable": "25%"}},
        "secondScheduler": {
            "enabled": True,
            "controlPlane": "required",
            "podDisruptionBudget": {"enabled": False},
            "name": "managed-scheduler",
            "allPods": True,
            "ignorable": True,
            "httpTimeout": "3s",
            "qps": 100,
            "burst": 200,
            "percentageOfNodesToScore": 50,
            "image": {"tag": "v1.36.0", "registry": "mirror.test"},
        },
    },
    "process": {
        "settings": {
            "enabled": True,
            "wake-with-annotation": True,
            "max-offers": 1000000,
            "strategy": "pack",
            "placement": "audit",
        },
        "schedulerNames": ["default-scheduler", "other-scheduler"],
        "excludedNamespaces": ["kube-system", "monitoring"],
        "clusterDomain": "cluster.example",
        "listenAddress": "::",
        "logLevel": "debug",
        "logFormat": "json",
        "controller": {
            "leaderElection": {"leaseDurationSeconds": 30, "renewDeadlineSeconds": 20, "retryPeriodSeconds": 3},
            "statusTls": {"port": 19508, "secretName": "status-tls"},
        },
        "tls": {"extraNames": ["extender.example.com", "192.0.2.1"]},
        "bind": {"enabled": True},
        "allocationRecord": {"enabled": True, "inLonghornNodes": True},
        "replicaPlacement": {"enabled": False},  # of earlier releases: it has no effect
        "uninstall": {"waitSeconds": 300, "force": True, "purge": True},
        "test": {"namespace": "kube-public"},
    },
    "network": {
        "service": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.200.200",
            "nodePort": 31504,
            "annotations": {"example.com/internal": "true"},
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": ["IPv4"],
        },
        "networkPolicy": {
            "enabled": True,
            "controlPlaneCIDRs": ["10.0.0.0/28", "fd00::/64"],
            "metricsFrom": {"namespaceSelector": {"matchLabels": {"name": "prometheus"}}},
        },
        "monitoring": {
            "labels": {"release": "prometheus"},
            "namespace": "kube-public",
            "interval": "15s",
            "scrapeTimeout": "5s",
            "relabelings": [{"targetLabel": "cluster", "replacement": "a"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "python"}],
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {
                "enabled": True,
                "runbookUrl": "https://docs.example.com/runbook/",
                "disabled": ["LonghornSchedulerGateNotEnforced"],
                "overrides": {"LonghornSchedulerNoRoom": {"for": "2h", "labels": {"severity": "info"}}},
            },
            "dashboard": {
                "enabled": True,
                "labels": {"grafana_dashboard": "yes"},
                "annotations": {"grafana_folder": "Storage"},
            },
        },
        "flowSchema": {
            "priorityLevel": "workload-high",
            "placesPriorityLevel": "workload-low",
            "matchingPrecedence": 250,
        },
    },
    "cert-manager": {
        "tls": {"mode": "cert-manager", "secretName": "extender-server", "clientSecretName": "extender-client"},
        "webhook": {
            "tls": {
                "mode": "cert-manager",
                "secretName": "webhook-server",
                "clientSecretName": "webhook-client",
                "leaderSecretName": "leader-server",
                "clientName": "webhook.example.com",
            }
        },
        "certManager": {"duration": "1440h", "renewBefore": "480h", "clientDuration": "43800h"},
        "secondScheduler": {"enabled": True},
    },
    "issuer": {
        "tls": {"mode": "cert-manager"},
        "certManager": {"issuerRef": {"name": "company", "kind": "ClusterIssuer", "group": "issuers.example.com"}},
        "service": {"clusterIP": "10.96.200.201"},
        "webhook": {"podDisruptionBudget": {"enabled": False}},
    },
    "provided": {
        "tls": {"mode": "provided", "certDir": "/etc/server"},
        "controller": {"podDisruptionBudget": {"maxUnavailable": 1}, "replicas": 1},
        "webhook": {
            "tls": {
                "mode": "provided",
                "certDir": "/etc/server",
                "clientCertDir": "/etc/client",
                "clientCAFile": "/etc/authorities/ca.crt",
            }
        },
        "secondScheduler": {"enabled": True, "replicas": 5, "podDisruptionBudget": {"maxUnavailable": 2}},
    },
    "plain HTTP, no webhook": {
        "tls": {"mode": "insecure-plain-http"},
        "webhook": {"enabled": False},
        "flowSchema": {"enabled": False},
        "uninstall": {"hook": False},
        "secondScheduler": {"enabled": True},
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "in-{{ .Release.Namespace }}"}},
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: also-{{ .Release.Name }}\n",
        ],
    },
}

# As their sites would have them: with a registry, so that nothing is added to them.
SITES: Final[dict[str, Values]] = {
    path.stem.removesuffix("-values"): yaml.safe_load(path.read_text())
    for path in sorted((CHART / "ci").glob("*.yaml"))
}
COMBINATIONS |= SITES


def kinds_of_others() -> list[dict[str, Any]]:
    """Definitions of the kinds that the chart has objects of and that others bring. They take any spec."""
    kinds = (
        *(("cert-manager.io", kind) for kind in ("Certificate", "Issuer")),
        *(("monitoring.coreos.com", kind) for kind in ("PodMonitor", "PrometheusRule", "ServiceMonitor")),
    )
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": f"{kind.lower()}s"},
                "versions": [version],
            },
        }
        for group, kind in kinds
    ]
