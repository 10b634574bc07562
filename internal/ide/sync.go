package ide

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// SyncRepository deploys the newest commit of a repository's branch without a delivery. It returns
// at once with the deployment, which is updated when it ends. While a synchronisation is running,
// further calls return it. The caller must be allowed to deploy. A disabled repository accepts no
// deliveries, but can be deployed this way.
func (s *Service) SyncRepository(ctx context.Context, sc scope.Scope, id int64) (Deployment, error) {
	if err := checkMayDeploy(sc); err != nil {
		return Deployment{}, err
	}
	var d Deployment
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "ide:deliveries"); err != nil {
			return err
		}
		r, err := load(ctx, tx, id)
		if err != nil {
			return err
		}
		if d, err = runningSync(ctx, tx, id); err == nil || !errors.Is(err, db.ErrNoRows) {
			return err
		}
		d = Deployment{
			ID: s.NewID(), RepositoryID: &r.ID, Source: Signed, EventType: "deploy", Status: InProgress, Branch: r.Branch,
			CreatedBy: sc.Actor.Name, CreatedAt: s.Now(),
		}
		w := work{RepositoryID: r.ID, URL: r.URL, Branch: r.Branch, Resource: r.ResourceID, Bouncer: r.BouncerID, Actor: sc.Actor}
		if err := s.begin(ctx, tx, d, w); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
			Type: "REPOSITORY_DELIVERY", Object: "deployment", ObjectID: d.ID, ObjectName: "sync", Env: scope.Sandbox,
			Changes: map[string]any{"source": d.Source, "branch": d.Branch},
		})
	})
	return d, err
}
