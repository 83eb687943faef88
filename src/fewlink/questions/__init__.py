"""Questions besides "which tails": which triples look wrong, which relation holds."""
