package ide

import "github.com/gatehouse-dev/gatehouse/internal/job"

// JobKind is the kind of the job that does a deployment's work.
const JobKind = "ide_deployment"

// Jobs declares the kinds of job of this package.
func (s *Service) Jobs() []job.Kind {
	return []job.Kind{{Name: JobKind, Work: s.Work, Dead: s.HandleDead}}
}
