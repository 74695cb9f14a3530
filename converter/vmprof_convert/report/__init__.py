"""Reports as text: tables in the terminal, Markdown and JSON, with their notes."""
