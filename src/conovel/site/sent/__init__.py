"""What a peer receives about the rows of a site."""
