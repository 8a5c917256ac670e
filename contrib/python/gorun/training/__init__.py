"""What training with TensorFlow and with any Keras has in common. Nothing here imports either."""
