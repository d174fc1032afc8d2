"""Copies named files of npm packages into the web pages, at locked versions."""
