"""What whoever is on call looks at and does, in words that the console, ``henchman top`` and the CLI share."""
