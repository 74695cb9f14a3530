"""What a run is asked for, and which processes it has."""
