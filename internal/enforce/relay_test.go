package enforce
