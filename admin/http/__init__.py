"""HTTP of the admin API: the server, one connection, routes, bodies, answers that fail, lists and their formats."""
