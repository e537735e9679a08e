"""`python -m controller.rpc CALL ...`: a call of the leader's DiskScheduler service by hand.

The answer is printed as JSON, with the field names of disk_scheduler.proto. The certificate comes from a folder with
`tls.crt`, `tls.key` and `ca.crt`, or from a Secret with them. Exit code 0; 1 when the leader refused the call or
nobody answered, with gRPC's code on standard error; 2 on misuse.
"""

from __future__ import annotations

import argparse
import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from controller.errors import ClusterError, ConfigError, NotReadyError
from controller.kube.api import ClientKubeApi, KubeApi
from controller.kube.resources import SECRETS
from controller.process.flags import add_version
from controller.rpc.client import SECONDS, CallFailedError, DiskSchedulerClient
from controller.serving.tls import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE, Material, read_directory

EXIT_REFUSED: Final = 1
EXIT_MISUSE: Final = 2
PORT: Final = 9504
MOST_SECONDS: Final = 3600.0
Connect = Callable[[str | None], KubeApi]


def main(arguments: Sequence[str] | None = None, *, connect: Connect = ClientKubeApi.load) -> int:
    """Make the call; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if isinstance(value, str) and not value.isprintable():
            parser.error(f"{name}: {value!r} has characters that cannot be sent")
    server_name = options.server_name or f"longhorn-replica-scheduler.{options.namespace}.svc"
    try:
        material = _material(options, connect)
        with DiskSchedulerClient(options.address or f"{server_name}:{PORT}", server_name, lambda: material) as client:
            reply = _call(client, options)
    except (ConfigError, ClusterError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_MISUSE
    except (CallFailedError, NotReadyError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    sys.stdout.write(f"{MessageToJson(reply, preserving_proto_field_name=True)}\n")
    return 0


def _call(client: DiskSchedulerClient, options: argparse.Namespace) -> Message:
    if options.call == "hold-expansion":
        return client.hold_expansion(
            options.volume, options.size_bytes, dry_run=options.dry_run, seconds=options.seconds
        )
    if options.call == "schedule-replica":
        return client.schedule_replica(options.volume, options.replica, seconds=options.seconds)
    if options.call == "reuse-failed-replica":
        return client.reuse_failed_replica(
            options.volume, hard_node_affinity=options.hard_node_affinity, seconds=options.seconds
        )
    if options.call == "expand-volume":
        return client.expand_volume(options.volume, options.size_bytes, seconds=options.seconds)
    if options.call == "deallocate-replica":
        return client.deallocate_replica(options.replica, seconds=options.seconds)
    if options.call == "schedule-backing-image":
        return client.schedule_backing_image(options.image, options.size_bytes, seconds=options.seconds)
    if options.call == "deallocate-backing-image":
        return client.deallocate_backing_image(options.image, options.disk_uuid, seconds=options.seconds)
    return client.find_disk_candidates(
        options.volume, options.replica, hard_node_affinity=options.hard_node_affinity, seconds=options.seconds
    )


def _material(options: argparse.Namespace, connect: Connect) -> Material:
    if options.certificate_dir:
        return read_directory(Path(options.certificate_dir))
    name = f"{options.namespace}/{options.secret}"
    data = connect(options.kubeconfig).get(SECRETS, options.namespace, options.secret).get("data") or {}
    try:
        parts = [b64decode(data[key], validate=True) for key in (CERTIFICATE_FILE, KEY_FILE, CLIENT_CA_FILE)]
    except KeyError as error:
        raise ConfigError(f"--secret: the Secret {name} has no {error.args[0]}") from error
    except ValueError as error:
        raise ConfigError(f"--secret: the Secret {name} is not base64: {error}") from error
    return Material(*parts)


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes from 0 to {2**63 - 1}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds up to {MOST_SECONDS:g}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controller.rpc", description="Calls the leader's gRPC service by hand."
    )
    add_version(parser)
    calls = parser.add_subparsers(dest="call", required=True)
    find = calls.add_parser("find-disk-candidates", help="ask which disks would take a replica of a volume")
    find.add_argument("volume", help="the Longhorn volume")
    find.add_argument("--replica", default="", help="one of its replicas that has no disk (default: an additional one)")
    find.add_argument("--hard-node-affinity", default="", help="the node that an additional replica has to go to")
    hold = calls.add_parser("hold-expansion", help="ask whether a volume may grow, and hold room for it")
    hold.add_argument("volume", help="the Longhorn volume")
    hold.add_argument("size_bytes", type=_bytes, help="the volume's new size in bytes")
    hold.add_argument("--dry-run", action="store_true", help="hold no room")
    schedule = calls.add_parser("schedule-replica", help="allocate a disk for a replica that has none")
    schedule.add_argument("volume", help="the Longhorn volume")
    schedule.add_argument("replica", help="its replica")
    reuse = calls.add_parser("reuse-failed-replica", help="ask which failed replica of a volume to bring back")
    reuse.add_argument("volume", help="the Longhorn volume")
    reuse.add_argument("--hard-node-affinity", default="", help="the node that it has to be on")
    expand = calls.add_parser("expand-volume", help="allocate room for all replicas of a volume at a larger size")
    expand.add_argument("volume", help="the Longhorn volume")
    expand.add_argument("size_bytes", type=_bytes, help="the volume's new size in bytes")
    free = calls.add_parser("deallocate-replica", help="free the room of a replica that is gone")
    free.add_argument("replica", help="the replica")
    image = calls.add_parser("schedule-backing-image", help="allocate a disk for another copy of a backing image")
    image.add_argument("image", help="the backing image")
    image.add_argument(
        "--size-bytes", type=_bytes, default=0, help="its size in bytes, if Longhorn does not know it yet"
    )
    copy = calls.add_parser("deallocate-backing-image", help="free the room of a copy of a backing image")
    copy.add_argument("image", help="the backing image")
    copy.add_argument("disk_uuid", help="the UUID of the disk that had the copy")
    for call in calls.choices.values():
        source = call.add_mutually_exclusive_group(required=True)
        source.add_argument("--certificate-dir", help="directory with tls.crt, tls.key and ca.crt")
        source.add_argument("--secret", help="Secret in --namespace with the same files")
        call.add_argument(
            "--namespace", default="longhorn-system", help="Longhorn's namespace (default: longhorn-system)"
        )
        call.add_argument(
            "--address", default="", help=f"HOST:PORT of the leader (default: its Service in --namespace, port {PORT})"
        )
        call.add_argument(
            "--server-name", default="", help="name in the leader's certificate (default: that of the Service)"
        )
        call.add_argument("--kubeconfig", help="kubeconfig for the API server, to read --secret")
        call.add_argument(
            "--seconds", type=_seconds, default=SECONDS, help=f"seconds to wait for the answer (default: {SECONDS:g})"
        )
    return parser
