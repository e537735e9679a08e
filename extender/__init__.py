"""The HTTP side of the scheduler extender: the wire form, and the order of the steps of a call."""
