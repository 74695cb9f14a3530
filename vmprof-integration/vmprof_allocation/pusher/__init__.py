"""The process that sends what a program's sampling leaves in a folder, to an engine
that keeps profiles.  Nothing of it is loaded in the program's process, but for
`target`, if the program itself asks for it."""
