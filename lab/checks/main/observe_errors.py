"""What the stand-ins raise where main.py would go wrong only later, in a place that misleads."""


class UnresolvedOptionsError(Exception):
    """main.py uses an option as it was given, where only the run knows what it comes to."""


class GroupLeftError(Exception):
    """main.py has left the process group, and goes on."""


class NoTestImagesError(Exception):
    """main.py asks for a loader of test images where there are none."""


class NeedlessWrapperError(Exception):
    """main.py wraps a model that trains on one device, without other ranks."""
