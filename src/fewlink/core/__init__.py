"""What every package builds on: errors, files, settings, seeds, progress, memory, threads and processes."""
