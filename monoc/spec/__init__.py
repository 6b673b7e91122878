"""The front end: a spec file becomes a resolved, checked :class:`monoc.spec.program.Program`."""
