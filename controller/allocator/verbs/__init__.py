"""What the allocator is asked: one module for each verb."""
