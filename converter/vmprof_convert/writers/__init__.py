"""From the model to what people look at, one module each."""
