"""Models made smaller and faster, with what that cost measured before and after."""
