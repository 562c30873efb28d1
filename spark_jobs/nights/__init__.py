"""The nights of quotas: what is live at the gateways, the days that were missed, the plan within its rails, and its publication."""
