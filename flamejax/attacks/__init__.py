"""What malicious clients do: one file each."""
