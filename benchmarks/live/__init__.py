"""An index that changes while it is searched: changes beside searches, ingest, replay, and the page of them all."""
