"""Views: what the API shows of limits, rules, topics and the fleet, as types."""
