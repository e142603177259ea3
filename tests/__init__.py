"""The tests. Helpers are imported as `tests.waiting`, from anywhere below."""
