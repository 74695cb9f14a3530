"""How one gets into a process that nobody prepared: ``target`` asks whether that is
possible, ``tracer`` (native/attach) has one of its threads make another one, and that
runs ``inside``.  ``gil`` is for programs that have used no threads."""
