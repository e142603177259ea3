"""What runs inside a slot, the template that forks slots, and what applications import."""
