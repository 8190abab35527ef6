"""What the blocks that ran moved through the memories."""
