"""What another process does between two steps of this one."""


def meanwhile(monkeypatch, owner, name, work):
    """Do some work right before the next call of a function, once; returns the list of what the work returned."""
    plain, done = getattr(owner, name), []

    def first(*given, **more):
        monkeypatch.setattr(owner, name, plain)
        done.append(work())
        return plain(*given, **more)

    monkeypatch.setattr(owner, name, first)
    return done
