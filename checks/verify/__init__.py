"""The protocol checked by exhaustive search: Spin models, their configurations, and what runs them."""
