"""What writes to the API server on behalf of the allocator."""
