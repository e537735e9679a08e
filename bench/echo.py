"""The floor that a filter call is compared with: a route that decodes the same body and answers all names."""

from __future__ import annotations

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from extender import wire


def create_echo_blueprint() -> Blueprint:
    routes = Blueprint("echo", __name__)

    @routes.post("/echo")
    def echo() -> ResponseReturnValue:
        args = wire.decode_filter_args(request.get_data(cache=False))
        return Response(wire.encode_filter_result(args, args.candidates, {}), mimetype="application/json")

    return routes
