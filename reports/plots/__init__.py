"""Plots of a report, where people would rather look than read. Each is a figure of SVG."""
