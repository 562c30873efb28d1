"""The nights of quotas: the live quotas of the gateways, the days that were missed, the plan within its rails, and its publication."""
