"""Small faults put into the allocator's pure modules, one at a time: do its tests notice?"""
