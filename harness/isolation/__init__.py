"""What model-written host code is shut off from: files, network, processes, kernel facilities."""
