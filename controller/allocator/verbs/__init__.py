"""What the allocator is asked: one module a verb."""
