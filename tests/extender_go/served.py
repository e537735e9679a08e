"""A process that serves the product's application by its own server, over a world that can be exchanged.

`python -m tests.extender_go.served PORT`. Beside the product's routes:

- `POST /test/world` puts another world (the JSON of WorldSpec) in place;
- `POST /test/choice/CLAIM/NODE` shows a choice of the scheduler's;
- `GET /test/ledger` tells what is promised.
"""

from __future__ import annotations

import sys

from flask import Blueprint, Flask, jsonify, request
from flask.typing import ResponseReturnValue

from controller.clock import SystemClock
from controller.serving.server import ServerOptions, serve
from extender.app import create_app
from extender.wire import ANY_SIZE, ClusterSize
from tests.extender_go.worlds import ExchangeableWorld, WorldSpec
from tests.fakes.served import OnlyApplication

BODY_LIMIT = 64 * 1024**2


def create_stage_app(
    stage: ExchangeableWorld, *, max_body_bytes: int = BODY_LIMIT, size: ClusterSize = ANY_SIZE
) -> Flask:
    return create_app(
        stage.verbs, stage.observer, SystemClock(), max_body_bytes=max_body_bytes, cluster_size=lambda: size
    )


def create_control(stage: ExchangeableWorld) -> Blueprint:
    routes = Blueprint("test", __name__)

    @routes.post("/test/world")
    def put_world() -> ResponseReturnValue:
        stage.exchange(WorldSpec.from_json(request.get_data()))
        return "", 204

    @routes.post("/test/choice/<claim>/<node>")
    def choose(claim: str, node: str) -> ResponseReturnValue:
        stage.world.cluster.select_node(claim, node)
        return "", 204

    @routes.get("/test/ledger")
    def ledger() -> ResponseReturnValue:
        return jsonify(stage.ledger())

    return routes


class ServedProcess(OnlyApplication):
    def __init__(self) -> None:
        stage = ExchangeableWorld(WorldSpec({}))
        app = create_stage_app(stage)
        app.register_blueprint(create_control(stage))
        super().__init__(app.wsgi_app)


def main() -> None:
    serve(ServerOptions("127.0.0.1", int(sys.argv[1]), threads=4), ServedProcess)


if __name__ == "__main__":
    main()
