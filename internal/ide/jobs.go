package ide

import "github.com/gatehouse-dev/gatehouse/internal/job"

// JobKind is the kind of job that does the work of a deployment.
const JobKind = "ide_deployment"

// Jobs returns the job kinds of this package.
func (s *Service) Jobs() []job.Kind {
	return []job.Kind{{Name: JobKind, Work: s.Work, Dead: s.HandleDead}}
}
