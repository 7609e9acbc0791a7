"""A served index under bounded load on this machine, beside a bare Serve application of the same hops."""
