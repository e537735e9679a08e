"""The sub-commands for people: status, explain, capacity, check, simulate, bundle."""
