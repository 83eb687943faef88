"""The foundation of all other packages: errors, storage, settings, seeds, progress, memory, threads and processes."""
