"""What an operator can watch."""
