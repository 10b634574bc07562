package plaintext

// Read returns how many bytes of the original were read.
func (t *Text) Read() int { return t.read }
