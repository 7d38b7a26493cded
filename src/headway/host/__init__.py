"""What Linux does for a host, real or emulated: control groups, networks, and what it says of itself."""
