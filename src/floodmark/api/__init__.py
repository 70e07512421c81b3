"""The public API, exported by `import floodmark`; the command line is built on it."""
