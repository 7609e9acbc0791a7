"""HAProxy in front of Serve, as in a busy server. Serve reads this module when it is imported."""

import os

os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1")
os.environ.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "1")
