package api

import "github.com/gatehouse-dev/gatehouse/internal/rest"

// segments lists the API by first path segment: one file, one line. The order
// is that of the document.
func (s *Server) segments() []func(*rest.Router) {
	return []func(*rest.Router){
		s.auth,
		s.developerPortal,
		s.tenants,
		s.users,
		s.environments,
		s.policies,
		s.policiesAsCode,
		s.templates,
		s.resources,
		s.classification,
		s.bouncers,
		s.ide,
		s.decisions,
		s.simulator,
		s.audit,
		s.compliance,
		s.dashboard,
		s.bridge,
		s.opa,
		s.authzen,
		s.health,
		s.exposition,
		s.documentation,
	}
}
