"""Sign-SGD with error feedback: the example of a compressor of your own."""
