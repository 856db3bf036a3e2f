"""Jobs that go through many items and can be interrupted."""
