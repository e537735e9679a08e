"""What makes a distribution start its kube-scheduler with the file: never an edit of a manifest, which upgrades undo.

kubeadm: ClusterConfiguration, kubeadm.k8s.io/v1beta3 and v1beta4. K3s and RKE2: their configuration files and what is
added to them from `config.yaml.d`; RKE2 writes the manifest of a static pod from it. Talos: a patch of the machine
configuration, of which kube-scheduler's is a part.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import PurePosixPath

from controller.scheduler_config.options import (
    CA,
    CERTIFICATE,
    KEY,
    SERVICE,
    CertificateData,
    CertificateDirectory,
    Options,
    is_address,
)

VOLUME = "scheduler-extender"


def header_of(options: Options) -> str:
    """What stands above a new configuration: where it goes; "" where that is not ours to say."""
    if not options.path:
        return ""
    lines = [f"For {options.path} on every machine that runs kube-scheduler."]
    if isinstance(options.certificates, CertificateData):
        lines.append("It holds a private key: owner root, mode 0600.")
    if isinstance(options.certificates, CertificateDirectory):
        lines.append(f"{options.certificates.path} has to hold {CA}, {CERTIFICATE} and, mode 0600, {KEY}.")
    lines.append("kube-scheduler reads it only when it starts.")
    return "\n".join([*lines, *_about_address(options), ""])


def fragments_of(options: Options) -> Sequence[str]:
    """Pieces of other files: YAML, whose first lines are comments that say where it goes."""
    match options.platform.name:
        case "kubeadm":
            return _kubeadm(options)
        case "k3s":
            return (_k3s(options),)
        case "rke2":
            return (_rke2(options),)
    return ()


def machine_patch(options: Options, config: str) -> str:
    """For Talos: the configuration as a part of its machine configuration."""
    holds_key = "; it holds a private key" if isinstance(options.certificates, CertificateData) else ""
    lines = [
        f"For the machine configuration of every control plane machine{holds_key}:",
        "  talosctl patch machineconfig --nodes NODE --patch @FILE",
        "Talos appends a patch's lists to existing ones, and kube-scheduler does not start with two entries of this",
        "extender: remove an older one first, with talosctl edit machineconfig. Talos then restarts kube-scheduler.",
        *_about_address(options),
    ]
    head = "".join(f"# {line}\n" for line in lines)
    if options.platform.name == "talos":
        return f"{head}cluster:\n  scheduler:\n    config:\n{textwrap.indent(config, '      ')}"
    document = "apiVersion: v1alpha1   # of Talos\nkind: KubeSchedulerConfig\nconfig:\n"
    return f"{head}{document}{textwrap.indent(config, '  ')}"


def _about_address(options: Options) -> list[str]:
    if not options.platform.on_host_network:
        return []
    if is_address(options.host):
        return [
            f"{options.host} is expected to be the ClusterIP of the Service {SERVICE}, or another address that",
            "leads to it. A ClusterIP works where kube-proxy, or what replaces it, runs on the same machine. Where",
            "none does, give the address of a Service of type LoadBalancer, or of a node and a NodePort. An address",
            "that changes, as when the Service is deleted and created again, needs a new file.",
        ]
    return [
        f"kube-scheduler resolves {options.host} by the machine's own resolver, which knows the cluster's names",
        "only if you have configured it to.",
    ]


def _kubeadm(options: Options) -> tuple[str, str]:
    """Both shapes: since v1beta4 extra arguments are a list of names and values."""
    volumes = f"""\
  extraVolumes:
    - name: {VOLUME}
      hostPath: {options.path}
      mountPath: {options.path}
      readOnly: true
      pathType: File   # a missing file is an error; no directory is created in its place
"""
    if isinstance(options.certificates, CertificateDirectory):
        volumes += f"""\
    - name: {VOLUME}-certificates
      hostPath: {options.certificates.path}
      mountPath: {options.certificates.path}
      readOnly: true
      pathType: Directory
"""
    newer = f"""\
# Add this to the ClusterConfiguration of kubeadm 1.31 and newer, in the ConfigMap kubeadm-config in kube-system.
# Upgrades read it from there, so it survives them; an edited manifest does not. Then, on each control plane machine,
# with that ClusterConfiguration in a file: kubeadm init phase control-plane scheduler --config FILE
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
scheduler:
  extraArgs:
    - name: config
      value: {options.path}
{volumes}"""
    older = f"""\
# The same for the older v1beta3, instead of the above: its arguments are a mapping.
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
scheduler:
  extraArgs:
    config: {options.path}
{volumes}"""
    return newer, older


def _k3s(options: Options) -> str:
    return f"""\
# For /etc/rancher/k3s/config.yaml.d/scheduler-extender.yaml on every server; then restart the service k3s, one server
# after the other. The plus adds to what earlier files set; files that come later by name need it for this key, too.
# kube-scheduler runs inside k3s, so nothing has to be mounted.
kube-scheduler-arg+:
  - config={options.path}
"""


def _rke2(options: Options) -> str:
    folder = PurePosixPath(options.path).parent
    certificates = ""
    if isinstance(options.certificates, CertificateDirectory) and PurePosixPath(options.certificates.path) != folder:
        certificates = f"  - {options.certificates.path}:{options.certificates.path}:ro\n"
    return f"""\
# For /etc/rancher/rke2/config.yaml.d/scheduler-extender.yaml on every server; then restart the service rke2-server, one
# server after the other. The plus adds to what earlier files set; files that come later by name need it, too.
kube-scheduler-arg+:
  - config={options.path}
# The directory, not the file: RKE2 by itself mounts a file that an argument names, if it exists when the service
# starts, and the kubelet refuses a path that is mounted twice.
kube-scheduler-extra-mount+:
  - {folder}:{folder}:ro
{certificates}"""
