"""The public API: `import floodmark` offers what is here, and the program is written on it."""
