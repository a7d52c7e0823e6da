"""Records what DDP does over Gloo: the recorder, its hooks and what belongs to them."""
