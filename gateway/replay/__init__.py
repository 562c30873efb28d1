"""Replay of durable spooled messages after a crash: they are published again, through the gateway's own pipeline (`docs/spooling.md`)."""
