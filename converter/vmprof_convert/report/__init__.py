"""Answers as text: tables in the terminal, Markdown and JSON, and their caveats."""
