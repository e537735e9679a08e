"""The command line of `render-scheduler-config`: reads the cluster, or the files that it names, and hands out text."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.clock import Clock, SystemClock
from controller.errors import ConfigError
from controller.kube.resources import Resource
from controller.scheduler_config.config import Rendered, merged_config, new_config
from controller.scheduler_config.fragments import fragments_of, machine_patch
from controller.scheduler_config.from_cluster import Get, client_certificate, service_address
from controller.scheduler_config.options import (
    CA,
    CERTIFICATE,
    DEFAULT_BURST,
    DEFAULT_PORT,
    DEFAULT_QPS,
    FILES,
    KEY,
    LONGEST_TIMEOUT_MILLISECONDS,
    NAMESPACE,
    PLATFORMS,
    CertificateData,
    CertificateDirectory,
    Options,
    parse_timeout,
    require,
)

NAME: Final = "render-scheduler-config"
PARTS: Final = ("all", "config", "wiring")
CLIENT_SECRET: Final = "longhorn-scheduler-extender-client"
WAIT_SECONDS: Final = 60
SOON: Final = timedelta(days=30)
Tell = Callable[[str], None]


def add_parser(commands: Any) -> None:
    """Adds the command to what `add_subparsers` returned. Absent numbers and switches stay None: see `Options`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME, help="print the configuration that makes kube-scheduler ask this extender"
    )
    add = parser.add_argument
    how = "how kube-scheduler runs in this cluster"
    add("--for", dest="platform", required=True, choices=tuple(PLATFORMS), help=how)
    parts = "config: the configuration; wiring: what makes kube-scheduler use it; all: both (default)"
    add("--part", choices=PARTS, default="all", help=parts)
    add("--merge", metavar="FILE", help="a KubeSchedulerConfiguration to extend; its own settings are kept")
    address = (
        "ClusterIP, DNS name or another address of the extender's Service (default: its DNS name; where "
        "kube-scheduler uses the host's network, its ClusterIP, read from the cluster)"
    )
    add("--service-address", metavar="HOST", default="", help=address)
    add("--port", type=int, default=DEFAULT_PORT, metavar="N", help="port of the Service (default: %(default)s)")
    add("--namespace", default=NAMESPACE, help="namespace of the Service (default: %(default)s)")
    add("--output", metavar="FILE", help="write the configuration to a file that only its owner can read")
    _add_transport(parser)
    _add_scheduler_flags(parser)


def _add_transport(parser: argparse.ArgumentParser) -> None:
    """TLS with what the cluster holds, unless something else is asked for."""
    add = parser.add_argument
    secret = "Secret with kube-scheduler's client certificate (default: %(default)s)"
    add("--client-secret", metavar="NAME", default=CLIENT_SECRET, help=secret)
    access = (
        "kubeconfig to read from the cluster with (default: the pod's service account; outside of a pod "
        "$KUBECONFIG or ~/.kube/config)"
    )
    add("--cluster-kubeconfig", metavar="FILE", default="", help=access)
    wait = "how long to wait for the Secret (default: %(default)s)"
    add("--wait", type=int, default=WAIT_SECONDS, metavar="SECONDS", help=wait)
    authority = (
        "PEM file with the extender's certificate authority; with --cert-file and --key-file instead of the Secret"
    )
    add("--ca-file", metavar="FILE", help=authority)
    add("--cert-file", metavar="FILE", help="PEM file with kube-scheduler's client certificate")
    add("--key-file", metavar="FILE", help="PEM file with the certificate's private key")
    directory = (
        f"directory on kube-scheduler's machine with {CA}, {CERTIFICATE} and {KEY}; the configuration then names "
        "these files, holds no secret, and may be kept in Git"
    )
    add("--certificate-dir", metavar="PATH", default="", help=directory)
    plain_http = (
        "no TLS, for a controller with --tls-mode insecure-plain-http: whoever reaches the extender's port is "
        "taken for kube-scheduler"
    )
    add("--insecure-plain-http", action="store_true", help=plain_http)


def _add_scheduler_flags(parser: argparse.ArgumentParser) -> None:
    """What the configuration says about kube-scheduler itself, and about its calls."""
    add = parser.add_argument
    longest = f"{LONGEST_TIMEOUT_MILLISECONDS // 1000}s"
    timeout = "timeout of a call, such as 3500ms (default: %(default)s)"
    add("--http-timeout", default=longest, metavar="TIME", help=timeout)
    add("--allow-long-timeout", action="store_true", help=f"accept an --http-timeout above {longest}")
    ignorable = "schedule pods unchecked while the extender is unavailable (default: let them wait)"
    add("--ignorable", action=argparse.BooleanOptionalAction, help=ignorable)
    add("--large-cluster", action="store_true", help="consider a quarter of the nodes for each pod, not all of them")
    add("--qps", type=int, metavar="N", help=f"requests per second to the API server (default: {DEFAULT_QPS})")
    add("--burst", type=int, metavar="N", help=f"requests to the API server in one burst (default: {DEFAULT_BURST})")
    profile = "name of the profile that asks the extender (default: that of kube-scheduler)"
    add("--scheduler-name", default="", metavar="NAME", help=profile)
    kubeconfig = "kube-scheduler's own kubeconfig (default: that of the distribution)"
    add("--kubeconfig", default="", metavar="PATH", help=kubeconfig)
    path = "where the file will be on kube-scheduler's machine (default: by distribution)"
    add("--config-path", default="", metavar="PATH", help=path)
    elect = "of several kube-schedulers only an elected one schedules (default)"
    add("--leader-elect", action=argparse.BooleanOptionalAction, help=elect)


def render(arguments: argparse.Namespace, tell: Tell, get: Get | None = None, clock: Clock | None = None) -> Rendered:
    """What to print, and notes for the person. `tell` is told at once what takes long, and what is odd about
    certificates. ConfigError names the option, or the field of the merged file."""
    now_utc = (clock or SystemClock()).now_utc()
    options = _options(arguments, get or _from(arguments.cluster_kubeconfig), tell, now_utc).checked()
    merge, is_talos = arguments.merge, options.platform.is_talos
    require(
        not (merge and is_talos),
        "--merge",
        "is not possible for Talos, which merges patches of its machine configuration itself",
    )
    wiring = _stream(fragments_of(options))
    if arguments.part == "wiring":
        require(bool(wiring), "--part", f"wiring does not exist for {options.platform.title}; leave --part out")
        return Rendered(wiring)
    rendered = merged_config(_text("--merge", merge), merge, options) if merge else new_config(options)
    return replace(
        rendered,
        text=machine_patch(options, rendered.text) if is_talos else rendered.text,
        others=wiring if arguments.part == "all" else "",
    )


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


def _options(arguments: argparse.Namespace, get: Get, tell: Tell, now_utc: datetime) -> Options:
    platform, address = PLATFORMS[arguments.platform], arguments.service_address
    needs_cluster = arguments.part != "wiring"  # which says neither whom to ask nor with what
    if not address and needs_cluster and platform.on_host_network:
        address = service_address(get, arguments.namespace)
    found = {
        **{name: value for name, value in vars(arguments).items() if name in Options.__dataclass_fields__},
        "platform": platform,
        "service_address": address,
        "certificates": _certificates(arguments, get if needs_cluster else None, tell, now_utc),
        "timeout_milliseconds": parse_timeout(arguments.http_timeout),
    }
    return Options(**found)


def _certificates(
    arguments: argparse.Namespace, get: Get | None, tell: Tell, now_utc: datetime
) -> CertificateData | CertificateDirectory | None:
    """Those that the options name, one way and no two; else those of the cluster, if it is to be asked."""
    paths = {f"--{name}-file": getattr(arguments, f"{name}_file") for name in FILES}
    ways = {
        "--insecure-plain-http": arguments.insecure_plain_http,
        "--certificate-dir": arguments.certificate_dir,
        "--ca-file, --cert-file and --key-file": any(paths.values()),
    }
    asked = [way for way, is_asked in ways.items() if is_asked]
    require(len(asked) < 2, " and ".join(asked), "exclude each other")
    if arguments.insecure_plain_http:
        return None
    if arguments.certificate_dir:
        return CertificateDirectory(arguments.certificate_dir)
    if asked:
        for option, path in paths.items():
            require(bool(path), option, "is missing: give all three certificate files, or none")
        files = {f"{option}: {path}": _content(option, path) for option, path in paths.items()}
        return _checked(files, now_utc, tell)
    if get is None:
        return None
    secret = arguments.client_secret
    data = client_certificate(get, arguments.namespace, secret, arguments.wait, tell)
    return _checked({f"--client-secret: {secret}: {file}": data[file] for file in FILES.values()}, now_utc, tell)


def _checked(files: Mapping[str, bytes], now_utc: datetime, tell: Tell) -> CertificateData:
    """The three, by their names for errors: each is what it should be now, and key and certificate belong together."""
    (ca_name, ca), (leaf_name, leaf), (key_name, key) = files.items()
    authorities, chain = _certificates_in(ca_name, ca), _certificates_in(leaf_name, leaf)
    certificate = chain[0]
    for one in authorities:
        require(_is_authority(one), ca_name, f"{_subject(one)} is no certificate authority")
    require(not _is_authority(certificate), leaf_name, f"{_subject(certificate)} is a certificate authority")
    require(_is_for_clients(certificate), leaf_name, "is not for clients: its extended key usage lacks clientAuth")
    for name, one in ((leaf_name, certificate), *((ca_name, one) for one in authorities)):
        _check_time(name, one, now_utc, tell)
    if not any(_is_issued_by(one, authority) for one in chain for authority in authorities):
        # Not wrong where callers and the server have certificates of two authorities.
        issuer = certificate.issuer.rfc4514_string()
        tell(f"{leaf_name}: its authority {issuer!r} is not in {ca_name}: does the extender's {CA} name it?")
    try:
        private_key = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # The library's own words may quote what is in the file.
        has_password = isinstance(error, TypeError)
        problem = "is protected by a passphrase" if has_password else "holds no unencrypted private key in PEM"
        raise ConfigError(f"{key_name}: {problem}") from error
    require(private_key.public_key() == certificate.public_key(), key_name, "is not the key of the certificate")
    return CertificateData(ca, leaf, key)


def _check_time(name: str, certificate: x509.Certificate, now_utc: datetime, tell: Tell) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    require(now_utc <= end, name, f"{_subject(certificate)} ended at {end:%Y-%m-%d %H:%M} UTC")
    require(begin <= now_utc, name, f"{_subject(certificate)} is not valid before {begin:%Y-%m-%d %H:%M} UTC")
    if end - now_utc < SOON:
        tell(f"{name}: {_subject(certificate)} ends at {end:%Y-%m-%d %H:%M} UTC; render the configuration anew before")


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """Without the extension, a certificate is for everything."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return bool({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage))


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _subject(certificate: x509.Certificate) -> str:
    return f"the certificate {certificate.subject.rfc4514_string()!r}"


def _certificates_in(name: str, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
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


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror or error}") from error


def _text(option: str, path: str) -> str:
    try:
        return _content(option, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: is not UTF-8 text") from error
