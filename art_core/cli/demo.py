"""Train a small model to search documentation, on this machine, in minutes"""
