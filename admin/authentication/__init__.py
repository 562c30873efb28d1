"""Who asks: bearer tokens, sessions of browsers, tokens that were made while the gateway runs."""
