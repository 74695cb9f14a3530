"""What Linux, malloc and the garbage collector say of this process's memory."""
