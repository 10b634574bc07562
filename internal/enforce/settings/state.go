package settings

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// State is all that a decision depends on: immutable, swapped whole.
type State struct {
	*Settings
	// Set is nil until there was a bundle.
	Set      *rego.Set
	Revision string
	// Credentials are what the application gets in place of the callers'; nil: nothing.
	Credentials *Credentials
	// Activated is when the bundle became the one decided on; zero: never.
	Activated time.Time
	Controls  int
}
