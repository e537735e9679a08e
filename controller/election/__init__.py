"""Who leads: a pure step and its loop, and the gate that prevents answers outside a term."""
