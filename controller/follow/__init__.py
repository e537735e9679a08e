"""From watch to allocator: which kinds of objects are followed, their stores, and what the allocator is told."""
