"""The home of profiles: they are read (readers), have a form that depends on no
file (model), and are written for who looks at them (writers)."""
