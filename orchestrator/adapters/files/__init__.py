"""Files: documents, archives, wheels, and the home folder."""
