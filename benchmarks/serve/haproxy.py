"""HAProxy in front of what is served, as a busy server has it: Serve reads this when it is imported."""

import os

os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1")
os.environ.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", "1")
