"""The search for leaks: allocation sites and types whose live memory keeps growing."""
