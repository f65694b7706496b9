"""Image datasets of the literature by name, from their official archives or the folders that these make."""
