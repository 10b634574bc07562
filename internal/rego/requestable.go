package rego

// Requestable reports whether access to a resource may be requested after a denial: its
// attribute request_access is true.
func (r *Resource) Requestable() bool {
	if r == nil {
		return false
	}
	yes, _ := r.Doc.Get(attributes).Get("request_access").Bool()
	return yes
}

// Requestable reports whether this is a denial that the subject may request access after. Errors
// are not: a grant would not change them.
func (d *Decision) Requestable() bool {
	return !d.Permit && d.Err == nil && d.Resource.Requestable()
}
