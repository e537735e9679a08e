"""The enhancement text's goals as scenarios, each with its counter-run without the extender (`docs/goals.md`)."""
