package ide

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Delivery is a delivery as it arrives: the request of a webhook.
type Delivery struct {
	// Repository is the id of the registered repository that the request names, or 0.
	Repository int64
	// Source is the sender that the headers name. Event is its event header, and Delivery is
	// its delivery id.
	Source, Event, Delivery string
	// Signature is the signature header, or GitLab's token.
	Signature string
	Body      []byte
}

// Receipt is the result of a delivery.
type Receipt struct {
	Deployment
	// Ignored is the reason why the event needs no work. It is empty if there is a deployment.
	Ignored string
	// Replayed means that the delivery was received before.
	Replayed bool
}

// ReceiveSigned accepts a delivery with a valid signature. A wrong signature, a repository that is
// unknown or disabled, and an unknown tenant all give the same Unauthenticated fault. A caller
// cannot tell them apart.
func (s *Service) ReceiveSigned(ctx context.Context, tenant scope.TenantID, requestID string, a Delivery) (Receipt, error) {
	refused := fault.New(fault.Unauthenticated, "invalid_signature", "the signature of the delivery is missing or wrong")
	sc, err := s.As(ctx, tenant, "repository", requestID)
	var r Repository
	if err == nil {
		r, err = s.Repository(ctx, sc, a.Repository)
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Forbidden) {
		return Receipt{}, err
	}
	secret := []byte("no repository has this secret") // the signature is also checked for unknown repositories
	found := err == nil
	if found {
		if secret, err = s.Box.Open(r.Secret, seal(sc, strconv.FormatInt(r.ID, 10), "secret")); err != nil {
			return Receipt{}, fault.Wrap(err, "open the repository's secret")
		}
	}
	if !signatureValid(a, secret) || !found || !r.Enabled {
		return Receipt{}, refused
	}
	sc.Actor = scope.Actor{Kind: scope.System, ID: "repository:" + strconv.FormatInt(r.ID, 10), Name: "repository " + r.Name}
	return s.receive(ctx, sc, a, &r)
}

// signatureValid reports whether the signature of a delivery is right. It compares in constant
// time.
func signatureValid(a Delivery, secret []byte) bool {
	if a.Source == GitLab {
		given, kept := sha256.Sum256([]byte(a.Signature)), sha256.Sum256(secret)
		return hmac.Equal(given[:], kept[:])
	}
	return outbound.SignatureValid(secret, a.Body, a.Signature)
}

// Receive accepts a delivery from a caller with a credential. The caller must be allowed to deploy.
func (s *Service) Receive(ctx context.Context, sc scope.Scope, a Delivery) (Receipt, error) {
	if err := checkMayDeploy(sc); err != nil {
		return Receipt{}, err
	}
	if a.Repository == 0 {
		return s.receive(ctx, sc, a, nil)
	}
	r, err := s.Repository(ctx, sc, a.Repository)
	if err != nil {
		return Receipt{}, err
	}
	return s.receive(ctx, sc, a, &r)
}

func (s *Service) receive(ctx context.Context, sc scope.Scope, a Delivery, r *Repository) (Receipt, error) {
	e, err := parseEvent(a.Source, a.Event, a.Body)
	if err != nil {
		return Receipt{}, err
	}
	if why := e.idle(r); why != "" {
		return Receipt{Ignored: why}, nil
	}
	w, err := s.workOf(ctx, sc, e, a, r)
	if err != nil {
		return Receipt{}, err
	}
	d := Deployment{ID: s.NewID(), Source: a.Source, EventType: e.kind, Status: InProgress, Branch: e.branch, CommitHash: e.commit, CreatedBy: sc.Actor.Name, CreatedAt: s.Now()}
	if r != nil {
		d.RepositoryID = &r.ID
	}
	known := ""
	digests := deliveryDigests(a)
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "ide:deliveries"); err != nil {
			return err
		}
		known = ""
		for _, digest := range digests {
			id, err := knownDelivery(ctx, tx, digest)
			if err == nil {
				known = id
				return nil
			}
			if !errors.Is(err, db.ErrNoRows) {
				return err
			}
		}
		for _, digest := range digests {
			if err := insertDelivery(ctx, tx, digest, d.ID, d.CreatedAt); err != nil {
				return err
			}
		}
		if err := s.begin(ctx, tx, d, w); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
			Type: "REPOSITORY_DELIVERY", Object: "deployment", ObjectID: d.ID, ObjectName: e.kind, Env: scope.Sandbox,
			Changes: map[string]any{"source": a.Source, "commit": e.commit, "branch": e.branch},
		})
	})
	if err != nil || known == "" {
		return Receipt{Deployment: d}, err
	}
	d, err = s.Deployment(ctx, sc, known)
	if fault.Is(err, fault.NotFound) { // digests are kept longer than deployments
		return Receipt{Ignored: "this delivery was received before; its deployment is not kept any more", Replayed: true}, nil
	}
	return Receipt{Deployment: d, Replayed: true}, err
}

// deliveryDigests returns the hashes by which a delivery is recognised: of its id and, if it has a
// signature, of its body. The id is not signed, so a replay may have another one.
func deliveryDigests(a Delivery) []string {
	var out []string
	name := func(kind string, text []byte) {
		h := sha256.New()
		h.Write([]byte(kind + "\x00" + strconv.FormatInt(a.Repository, 10) + "\x00" + a.Source + "\x00"))
		h.Write(text)
		out = append(out, hex.EncodeToString(h.Sum(nil)))
	}
	if a.Delivery != "" {
		name("delivery", []byte(a.Delivery))
	}
	if a.Signature != "" {
		name("body", a.Body)
	}
	return out
}

// idle returns the reason why an event needs no work, or "".
func (e gitEvent) idle(r *Repository) string {
	switch {
	case e.kind == nothing:
		return "the event needs no action"
	case r != nil && r.Branch != "" && e.kind != Tag && e.branch != r.Branch:
		return "the repository is registered for another branch"
	}
	return ""
}

// workOf returns the work that an event requests. It makes all checks that need no fetch.
func (s *Service) workOf(ctx context.Context, sc scope.Scope, e gitEvent, a Delivery, r *Repository) (work, error) {
	w := work{Validate: e.kind == PullRequest, Files: e.files, Paths: e.paths, URL: e.repository, Branch: e.branch, Hash: e.commit, Actor: sc.Actor}
	if r != nil {
		if a.Source == Signed && e.repository != "" && !sameRepository(e.repository, r.URL) {
			return w, fault.Invalidf("/repository_url", "the delivery comes from a repository other than the registered one")
		}
		w.RepositoryID, w.URL, w.Resource, w.Bouncer = r.ID, r.URL, r.ResourceID, r.BouncerID
	}
	fetches := len(e.paths) > 0 || len(e.files) == 0
	if !fetches {
		return w, nil
	}
	if hexHash(e.commit, 64) {
		return w, unsupported()
	}
	if !hexHash(e.commit, 40) {
		return w, fault.Invalidf("/commit_hash", "the full commit id of 40 characters is required unless every file includes its content")
	}
	if r == nil {
		if err := s.Target.Check(ctx, "/repository_url", w.URL); err != nil {
			return w, err
		}
	}
	if slices.ContainsFunc(e.paths, func(p string) bool { return p[0] == '/' }) {
		return w, fault.Invalidf("/policy_files", "a path must be relative to the repository")
	}
	return w, nil
}
