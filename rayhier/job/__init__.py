"""Turn a spec into a plan of steps, with sizes and hours, and run these steps."""
