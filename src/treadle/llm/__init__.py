"""Models: adapters of the `Model` port, and the layers around them."""
