"""The errors that a user may meet, each with a message that is complete."""
from __future__ import annotations


class ProfileError(Exception):
    """The file is not a profile, or is damaged; the message says where, in one
    line."""
