"""What protects a silo: its guard, its log, and the rules about test splits."""
