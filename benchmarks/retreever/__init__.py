"""ReTreever's tree beside adapters, a softmax without a tree, and trees that nothing trains: `make bench-retreever`."""
