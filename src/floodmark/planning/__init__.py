"""Pure decisions: what to read, load and compare, given facts about source, lake and target."""
