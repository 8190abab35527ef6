"""What the commands share: flags that are checked, a run followed on the terminal, output."""
