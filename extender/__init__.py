"""The HTTP side of the scheduler extender: the wire form, the order of the steps of a call, and the server."""
