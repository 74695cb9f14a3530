"""Processes that run already: attach, and ctl and top for those that are prepared."""
