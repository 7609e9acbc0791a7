"""An index that changes while it is searched: changes next to searches, ingest, replay, and their page."""
