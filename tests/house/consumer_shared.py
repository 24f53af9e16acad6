"""Somebody else's project with a shared distattn."""

import consumer

consumer.check("shared")
