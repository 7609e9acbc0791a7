"""Training of encoders, routers and cross-encoders."""
