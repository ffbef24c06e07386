"""The transforms of the library; no other package calls an FFT."""
