"""What the command does around a conversion: the output file, the browser, the
bar on the terminal."""
