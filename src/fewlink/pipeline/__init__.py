"""From a user's files to a run that answers questions: fit, append and train."""
