"""Who leads: a pure step and its loop, and the gate that lets nobody answer outside a term."""
