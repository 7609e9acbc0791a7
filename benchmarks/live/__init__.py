"""An index that changes while it is searched: changes next to searches, ingest, replay, and the page of them all."""
