"""Tensors and devices: whose memory it is, what lies there in which order, and what may be bound to a kernel."""
