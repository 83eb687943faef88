"""Generated benchmarks of NELL-One's or Wiki-One's shape, with rules planted in them."""
