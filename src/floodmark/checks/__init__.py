"""What `doctor` looks at: each check says what it found, and how to mend it."""
