"""Somebody else's project with a static distattn."""

import consumer

consumer.check("static")
