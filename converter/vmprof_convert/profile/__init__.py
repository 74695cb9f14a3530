"""The in-memory model of a profile: samples, stacks and types.

The readers fill the model. The analysis, the reports and the writers use it. This
package also merges the profiles of several processes and downsamples large profiles.
"""
