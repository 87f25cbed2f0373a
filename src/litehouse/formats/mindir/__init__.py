"""The MindIR format."""
