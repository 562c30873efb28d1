"""Real brokers, started for a test or a demonstration on free loopback ports and in a scratch directory, and stopped by process id.

Nothing global is touched: no service, no default port, no home directory, no other broker on this machine.
"""
