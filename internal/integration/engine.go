package integration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/blob"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/oci"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// The members of a credential for S3.
const (
	accessKey    = "access_key_id"
	secretKey    = "secret_access_key"
	sessionToken = "session_token"
)

const (
	// pushTime is the longest time for one push. A replica holds its lane for longer.
	pushTime = 45 * time.Second
	// askEvery is how often the store of a policy engine is asked whether it still has the bundle.
	askEvery = 5 * time.Minute
	// askTime is the longest time for that.
	askTime = 10 * time.Second
	// defaultRegion is the region of a bucket if the setting is absent.
	defaultRegion = "us-east-1"
	// bundleType is the media type of a bundle in S3.
	bundleType    = "application/gzip"
	noSuchBouncer = "the bouncer whose bundle is pushed does not exist any more"
	// revisionName is the annotation that contains the revision of an image's bundle.
	revisionName = "org.opencontainers.image.revision"
)

// Bundle is the bundle of a bouncer, ready to be pushed.
type Bundle struct {
	Revision int64
	Data     []byte
	// Controls and Bouncers are the revisions of the store from which it was built.
	Controls, Bouncers int64
}

// Bundles provides the bundles of bouncers.
type Bundles interface {
	// Bundle returns the current bundle of a bouncer, or NotFound.
	Bundle(ctx context.Context, tenant scope.TenantID, bouncer int64) (Bundle, error)
	// Environment returns the environment of a bouncer, or NotFound.
	Environment(ctx context.Context, tx *db.Tx, bouncer int64) (scope.Env, error)
}

// Pushed describes the bundle that the store of a policy engine has.
type Pushed struct {
	Revision int64     `json:"revision" doc:"Revision of the bundle, as in its manifest."`
	Digest   string    `json:"digest" doc:"In a registry the digest of the image, in S3 that of the bundle: sha256: and lower hex."`
	Bytes    int64     `json:"bytes" doc:"Size of the bundle in bytes."`
	At       time.Time `json:"pushed_at" doc:"When it was pushed."`
}

// storeRevisions is what was seen at the last comparison of the bundle.
type storeRevisions struct {
	// Controls and Bouncers are the revisions of the store. While they are unchanged, there is no new
	// bundle to push.
	Controls int64 `json:"controls"`
	Bouncers int64 `json:"bouncers"`
	// At is when the engine's store was last asked what it has, or got the bundle.
	At time.Time `json:"at,omitzero"`
	// Tag is what the engine's store calls the pushed bundle: the digest of the image, or the ETag of
	// the object.
	Tag string `json:"tag,omitempty"`
}

// current reports whether the revisions of the store are still those of l.
func (l *storeRevisions) current(at storeRevisions) bool {
	return l != nil && l.Controls == at.Controls && l.Bouncers == at.Bouncers
}

// askAt returns when the engine's store is asked again whether it has the bundle.
func (l *storeRevisions) askAt() time.Time { return l.At.Add(askEvery) }

// readRevisions returns the revisions of the store on which the bundles of an environment depend.
func readRevisions(ctx context.Context, tx *db.Tx, env scope.Env) (storeRevisions, error) {
	controls, err := tx.Revision(ctx, resource.Revision(env))
	if err != nil {
		return storeRevisions{}, err
	}
	bouncers, err := tx.Revision(ctx, tenant.BouncerRevision)
	return storeRevisions{Controls: controls, Bouncers: bouncers}, err
}

// bouncerOf returns the id of the bouncer whose bundle is pushed; 0: the setting is not an id.
func bouncerOf(it Integration) int64 {
	text, _ := it.Settings[settingBouncer].(string)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != text {
		return 0
	}
	return id
}

// placeBouncer checks the bouncer of a policy engine, and returns the integration with the
// bouncer's environment.
func (s *Service) placeBouncer(ctx context.Context, tx *db.Tx, it Integration) (Integration, error) {
	env, err := s.Bundles.Environment(ctx, tx, bouncerOf(it))
	if fault.Is(err, fault.NotFound) {
		return it, fault.Invalidf("/settings/"+settingBouncer, "there is no such bouncer")
	}
	if err == nil && it.Environment != scope.AnyEnv && it.Environment != env {
		err = fault.Invalidf("/settings/"+settingBouncer, "the bouncer is in another environment: %s", env)
	}
	it.Environment = env
	return it, err
}

// checkEngine returns the errors in the settings, endpoint and credential of a policy engine.
func checkEngine(it Integration, secrets map[string]string) (offences []fault.Detail) {
	if bouncerOf(it) == 0 {
		offences = append(offences, fault.Detail{Pointer: "/settings/" + settingBouncer, Message: "must be the id of a bouncer"})
	}
	_, inRegistry := oci.Parse(it.Endpoint)
	_, inBucket := blob.ParseObject(it.Endpoint)
	switch {
	case inRegistry == nil:
		if secrets[accessKey] != "" {
			offences = append(offences, fault.Detail{Pointer: "/credential", Message: "a registry gets " + format.Username + " and " + format.Password + ", " + format.BearerToken + ", or nothing"})
		}
		if it.Settings[settingRegion] != nil {
			offences = append(offences, fault.Detail{Pointer: "/settings/" + settingRegion, Message: "is only for an s3 endpoint"})
		}
	case inBucket == nil:
		if secrets[accessKey] == "" {
			offences = append(offences, fault.Detail{Pointer: "/credential", Message: "S3 needs " + accessKey + " and " + secretKey})
		}
	case strings.HasPrefix(it.Endpoint, "s3"):
		offences = append(offences, fault.Detail{Pointer: "/endpoint", Message: blob.ErrObject.Error()})
	default:
		offences = append(offences, fault.Detail{Pointer: "/endpoint", Message: oci.ErrNoRepository.Error() + ", or s3://host/bucket/key"})
	}
	return offences
}

// checkEngineTarget refuses an address that the operator does not allow.
func (s *Service) checkEngineTarget(ctx context.Context, it Integration) error {
	if p, err := oci.Parse(it.Endpoint); err == nil {
		return s.Target.Check(ctx, "/endpoint", p.URL())
	}
	o, err := blob.ParseObject(it.Endpoint)
	if err != nil {
		return fault.Invalidf("/endpoint", "%s", err)
	}
	return s.Target.Check(ctx, "/endpoint", o.URL())
}

// nextBundle returns the parcel of a policy engine: its bundle, if the engine's store does not have
// it.
func (f *Forwarder) nextBundle(ctx context.Context, tenantID scope.TenantID, it Integration) (p parcel, err error) {
	b, err := f.Bundles.Bundle(ctx, tenantID, bouncerOf(it))
	switch {
	case fault.Is(err, fault.NotFound):
		return parcel{problem: noSuchBouncer}, nil
	case err != nil:
		return p, err
	case it.Pushed == nil || it.Pushed.Revision != b.Revision:
		return parcel{bundle: &b}, nil
	}
	at, now := storeRevisions{Controls: b.Controls, Bouncers: b.Bouncers}, db.Stamp(f.Now())
	if it.Looked != nil {
		at.At, at.Tag = it.Looked.At, it.Looked.Tag
	}
	asks := !now.Before(at.askAt())
	if asks {
		if at.At = now; !f.has(ctx, tenantID, it, at.Tag) {
			return parcel{bundle: &b}, nil
		}
	}
	if !asks && it.Looked.current(at) {
		return p, nil
	}
	return p, f.Stores.Write(ctx, tenantID, func(tx *db.Tx) error { return saveLooked(ctx, tx, it, f.Holder, at) })
}

// has asks the store of a policy engine whether it has what it calls tag. A store that hangs may carry
// out a push after it was given up, and after a newer one: then the older bundle is in its place. A
// store that does not say what it has, because it is down or does not permit it, is taken to have
// the bundle.
func (f *Forwarder) has(ctx context.Context, tenantID scope.TenantID, it Integration, tag string) bool {
	secrets, err := f.open(tenantID, it)
	if err != nil || tag == "" { // pushed before tags were stored
		return err != nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var there string
	if p, bad := oci.Parse(it.Endpoint); bad == nil {
		there, err = oci.Current(ctx, f.Target, p, loginOf(secrets))
	} else if o, bad := objectOf(it, secrets); bad == nil {
		there, err = o.Current(ctx, f.Target)
	}
	if err != nil || there == tag {
		return true
	}
	f.Logger.Warn("the store of a policy engine has another bundle than the last one pushed; pushing again",
		"tenant", tenantID, "integration", it.ID, "pushed", tag, "found", there)
	return false
}

func loginOf(secrets map[string]string) oci.Login {
	return oci.Login{User: secrets[format.Username], Password: secrets[format.Password], Token: secrets[format.BearerToken]}
}

// objectOf returns the object to which the bundle of an integration is pushed.
func objectOf(it Integration, secrets map[string]string) (blob.Object, error) {
	o, err := blob.ParseObject(it.Endpoint)
	region, _ := it.Settings[settingRegion].(string)
	o.Region, o.AccessKey, o.SecretKey = cmp.Or(region, defaultRegion), secrets[accessKey], secrets[secretKey]
	o.SessionToken = secrets[sessionToken]
	return o, err
}

// push pushes a bundle and returns the digest of what was pushed. If b is nil, it only asks the
// store whether it would accept one.
func (s *Service) push(ctx context.Context, it Integration, secrets map[string]string, b *Bundle) (digest string, a answer) {
	ctx, cancel := context.WithTimeout(ctx, pushTime)
	defer cancel()
	var pause atomic.Int64 // in nanoseconds
	ctx = outbound.WithReplyObserver(ctx, func(r outbound.Response) {
		if !r.OK() {
			pause.Store(int64(r.RetryAfter(s.Now(), longestPause)))
		}
	})
	defer func() { a.pause = time.Duration(pause.Load()) }()
	if p, err := oci.Parse(it.Endpoint); err == nil {
		login := loginOf(secrets)
		if b == nil {
			err = oci.Check(ctx, s.Target, p, login)
		} else {
			digest, err = oci.Push(ctx, s.Target, p, login, b.Data, map[string]string{revisionName: strconv.FormatInt(b.Revision, 10)})
			a.tag = digest
		}
		if err != nil {
			a.ResponseCode, a.Error = oci.Describe(err)
		}
		return digest, a
	}
	o, err := objectOf(it, secrets)
	if err != nil {
		a.Error = "endpoint: " + err.Error()
		return "", a
	}
	if b == nil {
		err = o.Try(ctx, s.Target, []byte("a test of gatehouse\n"))
	} else {
		sum := sha256.Sum256(b.Data)
		digest = "sha256:" + hex.EncodeToString(sum[:])
		a.tag, err = o.Put(ctx, s.Target, b.Data, bundleType)
	}
	if err != nil {
		a.ResponseCode, a.Error = blob.ObjectAnswer(err)
	}
	return digest, a
}

// exampleBundle returns the parcel of a test. It builds the bundle to find errors; the test then
// asks the store whether it would accept one.
func (s *Service) exampleBundle(ctx context.Context, sc scope.Scope, it Integration) (parcel, error) {
	_, err := s.Bundles.Bundle(ctx, sc.Tenant, bouncerOf(it))
	if fault.Is(err, fault.NotFound) {
		return parcel{problem: noSuchBouncer}, nil
	}
	return parcel{}, err
}

// postBundle pushes the bundle of a parcel.
func (s *Service) postBundle(ctx context.Context, it Integration, secrets map[string]string, p parcel) (a answer) {
	digest, a := s.push(ctx, it, secrets, p.bundle)
	if a.Error == "" && p.bundle != nil {
		a.pushed = &Pushed{Revision: p.bundle.Revision, Digest: digest, Bytes: int64(len(p.bundle.Data)), At: db.Stamp(s.Now())}
	}
	return a
}

// resetPushed makes sure that the store of a policy engine gets its bundle again. A replica that was
// suspended, or could not reach our store, may have overwritten a newer bundle with its own, even
// after the replica that took over the lane recorded its push. So resetPushed deletes that record, and
// ends the turn of the other replica.
func (f *Forwarder) resetPushed(ctx context.Context, tenantID scope.TenantID, it Integration) error {
	return f.Stores.Write(ctx, tenantID, func(tx *db.Tx) error { return forgetPushed(ctx, tx, it.ID, f.Holder) })
}

// stored records that the store of a policy engine has a bundle. It returns errLost if another
// replica has taken over the lane.
func (f *Forwarder) stored(ctx context.Context, tx *db.Tx, tenantID scope.TenantID, it Integration, b Bundle, a answer) error {
	p := a.pushed
	ours, err := savePushed(ctx, tx, it, f.Holder, p, storeRevisions{b.Controls, b.Bouncers, p.At, a.tag})
	if err != nil {
		return err
	}
	if !ours {
		return errLost
	}
	e := it.entry("INTEGRATION_BUNDLE_PUSHED", nil)
	e.EventContext = map[string]any{"bouncer_id": bouncerOf(it), "revision": p.Revision, "digest": p.Digest, "bytes": p.Bytes}
	return audit.Append(ctx, tx, it.system(tenantID), p.At, e)
}
