"""Weeks of traffic to judge quotas on: generated and real ones, and the score of a method on them."""
