"""Engines that run a cell's flow: durable on DBOS, or in memory."""
