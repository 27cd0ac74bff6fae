"""Speed, measured beside others that do the same work (`flamejax bench`)."""
