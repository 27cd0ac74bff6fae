"""How the server makes one message of many: one family a file."""
