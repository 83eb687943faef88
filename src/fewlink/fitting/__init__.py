"""From a user's files to a run that makes predictions: fit, append and train."""
