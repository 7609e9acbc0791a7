"""A job: its spec becomes a plan of steps, with sizes and hours, and a run of these steps."""
