"""The command line of `render-scheduler-config`: reads the cluster, or the files that it names, and hands out text."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from controller.errors import ConfigError
from controller.kube.resources import Resource
from controller.scheduler_config.config import Rendered, merged_config, new_config
from controller.scheduler_config.fragments import fragments_of, header_of, machine_patch
from controller.scheduler_config.from_cluster import Get, client_certificate, service_address
from controller.scheduler_config.options import (
    CA,
    CERTIFICATE,
    DEFAULT_BURST,
    DEFAULT_PORT,
    DEFAULT_QPS,
    KEY,
    LONGEST_TIMEOUT_MILLISECONDS,
    PLATFORMS,
    CertificateData,
    CertificateDirectory,
    Options,
    parse_timeout,
    require,
)

NAME: Final = "render-scheduler-config"
PARTS: Final = ("all", "config", "wiring")
_FILES: Final = {"ca_file": CA, "cert_file": CERTIFICATE, "key_file": KEY}
CLIENT_SECRET: Final = "longhorn-scheduler-extender-client"
WAIT_SECONDS: Final = 60


def add_parser(commands: Any) -> None:
    """Adds the command to what `add_subparsers` returned. Absent numbers and switches stay None: see `Options`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME, help="print the configuration that makes kube-scheduler ask this extender"
    )
    add = parser.add_argument
    add(
        "--for",
        dest="platform",
        required=True,
        choices=tuple(PLATFORMS),
        help="how kube-scheduler runs in this cluster",
    )
    add(
        "--part",
        choices=PARTS,
        default="all",
        help="config: the configuration; wiring: what makes kube-scheduler use it; all: both (default)",
    )
    add("--merge", metavar="FILE", help="a KubeSchedulerConfiguration to extend; its own settings are kept")
    add(
        "--service-address",
        metavar="HOST",
        default="",
        help="ClusterIP, DNS name or another address of the extender's Service (default: its DNS name; where "
        "kube-scheduler uses the host's network, its ClusterIP, read from the cluster)",
    )
    add("--port", type=int, default=DEFAULT_PORT, metavar="N", help=f"port of the Service (default: {DEFAULT_PORT})")
    add(
        "--namespace",
        default=Options.__dataclass_fields__["namespace"].default,
        help="namespace of the Service (default: %(default)s)",
    )
    add("--output", metavar="FILE", help="write the configuration to a file that only its owner can read")
    _add_transport(parser)
    _add_scheduler_flags(parser)


def _add_scheduler_flags(parser: argparse.ArgumentParser) -> None:
    """What the configuration says about kube-scheduler itself, and about its calls."""
    add = parser.add_argument
    longest = f"{LONGEST_TIMEOUT_MILLISECONDS // 1000}s"
    add(
        "--http-timeout",
        default=longest,
        metavar="TIME",
        help=f"timeout of a call, such as 3500ms (default: {longest})",
    )
    add("--allow-long-timeout", action="store_true", help=f"accept an --http-timeout above {longest}")
    add(
        "--ignorable",
        action=argparse.BooleanOptionalAction,
        help="schedule pods unchecked while the extender is unavailable (default: let them wait)",
    )
    add("--large-cluster", action="store_true", help="consider a quarter of the nodes for each pod, not all of them")
    add("--qps", type=int, metavar="N", help=f"requests per second to the API server (default: {DEFAULT_QPS})")
    add("--burst", type=int, metavar="N", help=f"requests to the API server in one burst (default: {DEFAULT_BURST})")
    add(
        "--scheduler-name",
        default="",
        metavar="NAME",
        help="name of the profile that asks the extender (default: that of kube-scheduler)",
    )
    add(
        "--kubeconfig",
        default="",
        metavar="PATH",
        help="kube-scheduler's own kubeconfig (default: that of the distribution)",
    )
    add(
        "--config-path",
        default="",
        metavar="PATH",
        help="where the file will be on kube-scheduler's machine (default: by distribution)",
    )
    add(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        help="of several kube-schedulers only an elected one schedules (default)",
    )


def _add_transport(parser: argparse.ArgumentParser) -> None:
    """TLS with what the cluster holds, unless something else is asked for."""
    add = parser.add_argument
    add(
        "--client-secret",
        metavar="NAME",
        default=CLIENT_SECRET,
        help=f"Secret with kube-scheduler's client certificate (default: {CLIENT_SECRET})",
    )
    add(
        "--cluster-kubeconfig",
        metavar="FILE",
        default="",
        help="kubeconfig to read from the cluster with (default: the pod's service account; outside of a pod "
        "$KUBECONFIG or ~/.kube/config)",
    )
    add(
        "--wait",
        type=int,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait for the Secret (default: {WAIT_SECONDS})",
    )
    add(
        "--ca-file",
        metavar="FILE",
        help="PEM file with the extender's certificate authority; with --cert-file and --key-file instead of the "
        "Secret",
    )
    add("--cert-file", metavar="FILE", help="PEM file with kube-scheduler's client certificate")
    add("--key-file", metavar="FILE", help="PEM file with the certificate's private key")
    add(
        "--certificate-dir",
        metavar="PATH",
        default="",
        help=f"directory on kube-scheduler's machine with {CA}, {CERTIFICATE} and {KEY}; the configuration then names "
        "these files, holds no secret, and may be kept in Git",
    )
    add(
        "--insecure-plain-http",
        action="store_true",
        help="no TLS, for a controller with --tls-mode insecure-plain-http: whoever reaches the extender's port is "
        "taken for kube-scheduler",
    )


def render(
    arguments: argparse.Namespace,
    tell: Callable[[str], None],
    read: Callable[[str], bytes] | None = None,
    get: Get | None = None,
) -> Rendered:
    """What to print, and notes for the person. `tell` is told at once what takes long. ConfigError names the option, or
    the field of the merged file."""
    read, get = read or _read, get or _from(arguments.cluster_kubeconfig)
    options = _options(arguments, read, get, tell).checked()
    require(
        not (arguments.merge and options.platform.is_talos),
        "--merge",
        "is not possible for Talos, which merges patches of its machine configuration itself",
    )
    merge, part = arguments.merge, arguments.part
    if part == "wiring":
        title, fragments = options.platform.title, fragments_of(options)
        require(bool(fragments), "--part", f"wiring does not exist for {title}; leave --part out")
        return Rendered(_stream(fragment.text for fragment in fragments))
    header = header_of(options, is_merged=bool(merge))
    if merge:
        rendered = merged_config(_text(read, "--merge", merge), merge, options)
    else:
        rendered = new_config(options, header)
    text = rendered.text
    if options.platform.is_talos:
        text = machine_patch(options, text)
    others = _stream(fragment.text for fragment in fragments_of(options)) if part == "all" else ""
    return Rendered(text, rendered.notes, others)


def printed(rendered: Rendered, path: str) -> str:
    """What belongs on the screen, once the configuration is in the file at `path`; "" for no file: all of it.
    ConfigError when it cannot be written; the file is there whole or not at all, and only its owner may read it."""
    if not path:
        return _stream(filter(None, (rendered.text, rendered.others)))
    made = Path(f"{path}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(rendered.text)
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise ConfigError(f"--output: {path}: {error.strerror or error}") from error
    return rendered.others


def _stream(pieces: Iterable[str]) -> str:
    return "---\n".join(pieces)


def _options(
    arguments: argparse.Namespace, read: Callable[[str], bytes], get: Get, tell: Callable[[str], None]
) -> Options:
    platform, address = PLATFORMS[arguments.platform], arguments.service_address
    needs_cluster = arguments.part != "wiring"  # which says neither whom to ask nor with what
    if not address and needs_cluster and platform.on_host_network:
        address = service_address(get, arguments.namespace)
    certificates = _certificates(arguments, read, get if needs_cluster else None, tell)
    return Options(
        platform=platform,
        service_address=address,
        port=arguments.port,
        namespace=arguments.namespace,
        certificates=certificates,
        timeout_milliseconds=parse_timeout(arguments.http_timeout),
        allow_long_timeout=arguments.allow_long_timeout,
        ignorable=arguments.ignorable,
        large_cluster=arguments.large_cluster,
        qps=arguments.qps,
        burst=arguments.burst,
        scheduler_name=arguments.scheduler_name,
        kubeconfig=arguments.kubeconfig,
        config_path=arguments.config_path,
        leader_elect=arguments.leader_elect,
    )


def _certificates(
    arguments: argparse.Namespace, read: Callable[[str], bytes], get: Get | None, tell: Callable[[str], None]
) -> CertificateData | CertificateDirectory | None:
    """Those that the options name, one way and no two; else those of the cluster, if it is to be asked."""
    given = {name: getattr(arguments, name) for name in _FILES}
    ways = {
        "--insecure-plain-http": arguments.insecure_plain_http,
        "--certificate-dir": bool(arguments.certificate_dir),
        "--ca-file, --cert-file and --key-file": any(given.values()),
    }
    asked = [way for way, is_asked in ways.items() if is_asked]
    require(len(asked) < 2, " and ".join(asked), "exclude each other")
    if arguments.insecure_plain_http:
        return None
    if arguments.certificate_dir:
        return CertificateDirectory(arguments.certificate_dir)
    if not asked:
        if get is None:
            return None
        secret = arguments.client_secret
        data = client_certificate(get, arguments.namespace, secret, arguments.wait, tell)
        return _checked({key: (f"--client-secret: {secret}: {key}", data[key]) for key in (CA, CERTIFICATE, KEY)})
    for name in _FILES:
        require(bool(given[name]), _option(name), "is missing: give all three certificate files, or none")
    return _checked(
        {
            key: (f"{_option(name)}: {given[name]}", _content(read, _option(name), given[name]))
            for name, key in _FILES.items()
        }
    )


def _checked(files: Mapping[str, tuple[str, bytes]]) -> CertificateData:
    """Each, under the name for errors, is what it should be, and key and certificate belong together."""
    _certificate(*files[CA])
    leaf = _certificate(*files[CERTIFICATE])
    name, data = files[KEY]
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # The library's own words may quote what is in the file.
        raise ConfigError(f"{name}: holds no unencrypted private key in PEM") from error
    require(key.public_key() == leaf.public_key(), name, "is not the key of the certificate")
    return CertificateData(*(files[key][1] for key in (CA, CERTIFICATE, KEY)))


def _certificate(name: str, data: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(data)[0]
    except ValueError as error:
        raise ConfigError(f"{name}: holds no certificate in PEM") from error


def _from(kubeconfig: str) -> Get:
    """Reads the cluster, once something has to be read: all options together may do without."""

    def get(resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        from controller.kube.api import ClientKubeApi  # half a second, which a command without a cluster does not need

        path = kubeconfig or os.environ.get("KUBECONFIG", "")
        if not path and "KUBERNETES_SERVICE_HOST" not in os.environ:
            path = str(Path.home() / ".kube" / "config")
        return ClientKubeApi.load(path or None).get(resource, namespace, name)

    return get


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _content(read: Callable[[str], bytes], option: str, path: str) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror or error}") from error


def _text(read: Callable[[str], bytes], option: str, path: str) -> str:
    try:
        return _content(read, option, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: is not UTF-8 text") from error


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
