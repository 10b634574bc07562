package rego

// Txtar is for the tests outside of the package.
var Txtar = txtar

// ReadBundle reads a bundle with no set known beforehand.
func ReadBundle(data []byte, verify *Verify) (*Bundle, error) {
	return BundleReader{Verify: verify}.Read(data)
}
