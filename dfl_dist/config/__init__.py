"""Settings: their schema, what was asked, what is in force. Configuration stops here and at the entry points."""
