"""What operators are shown of a running gateway, as types: made by the gateway, told by the admin API, and read by the command line."""
