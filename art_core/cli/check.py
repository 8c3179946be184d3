"""Play one group before any training, and say what would go wrong"""
