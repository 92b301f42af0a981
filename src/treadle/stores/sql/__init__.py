"""The statements that the stores in databases share, each written once over a small dialect."""
