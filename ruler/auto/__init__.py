"""AutoRL: from a description to scenarios, training and a report."""
