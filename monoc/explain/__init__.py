"""What a name of a spec is: ``monoc explain``."""
