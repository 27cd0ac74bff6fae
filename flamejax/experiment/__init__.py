"""The paper's tables and figures: which runs they are made of, and what these come to."""
