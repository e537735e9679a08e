"""Random worlds with faults, in virtual time, in which the product's own code places every copy."""
