"""The types of the compiled module; its functions are described where they are, in the .pyx files."""

#: The checksum of the sources that it was built from.
SOURCE: int
