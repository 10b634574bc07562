package settings

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// State is everything that a decision depends on. It is immutable, and replaced as a whole.
type State struct {
	*Settings
	// Set is nil before the first bundle.
	Set      *rego.Set
	Revision string
	// Credentials are what the application receives in place of the callers'; nil: nothing.
	Credentials *Credentials
	// Activated is when the bundle became active; zero: never.
	Activated time.Time
	Controls  int
}

// Agents returns the AI agents of the tenant, as the bundle has them.
func (st *State) Agents() actor.Agents {
	if st.Set == nil {
		return actor.Agents{}
	}
	return st.Set.Agents()
}
