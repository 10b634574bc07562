package policy

// Figures counts the controls of an environment, or of both. Libraries and deleted controls
// are not counted.
type Figures struct {
	Total  int64 `db:"total"`
	Active int64 `db:"active"`
	Draft  int64 `db:"draft"`
	// Protecting counts the active controls that are bound to a resource.
	Protecting int64 `db:"protecting"`
}
