"""The tenant's bookings for other agents, by the Model Context Protocol. Only `protocol.py` imports its library."""
