"""The statements that the stores in databases share, written once over a small dialect."""
