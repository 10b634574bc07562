package db

import (
	"container/list"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// sqliteBackend has one file for each store. It closes unused files, because each connection takes
// half a megabyte of memory. A sweep over all tenants opens every file, so a file counts as busy
// only if it is used after a trim that followed its opening. At most maxIdle busy files and newIdle
// other files stay open while unused. A trim closes files that were not used since the last trim,
// down to keptIdle.
type sqliteBackend struct {
	dir     string // directory of the system store; empty in a region, which has none
	tenants string // directory of the tenants' files
	saved   string // directory of a region's files in a backup
	readers int
	maxIdle int

	mu     sync.Mutex
	closed bool
	open   map[part]*sqliteStore
	// closing counts the stores that were removed from open and still have connections. Until they
	// are closed, no new file of the same name may be created: SQLite deletes the WAL file by its
	// name when the last connection closes.
	closing   map[part]int
	closeDone chan struct{} // closed and replaced when an entry of closing is removed
	// unused has the stores without users, the longest unused first.
	unused struct{ busy, others *list.List }
	trims  int         // number of trims so far
	timer  *time.Timer // of the next trim; nil: none is planned
}

const (
	keptIdle  = 16
	newIdle   = 32
	trimEvery = 2 * time.Second
)

// sqliteStore is one open file: one writer and a few readers.
type sqliteStore struct {
	part   part
	writer *sqliteWriter
	reads  *sqliteReaders
	// sqliteBackend.mu guards the fields below.
	users  int
	list   *list.List    // the list of unused stores that has this one; nil if it has users
	place  *list.Element // in list
	gone   bool          // the store was dropped: the last user closes the connections
	closed bool          // the backend was closed: the last user closes the connections
	opened int           // value of trims when the store was opened
	used   bool          // the store was used since the last trim
}

// openSQLite opens the directory of a region, or the deployment's own if region is empty. Regions
// may share a directory: each has its own subdirectory.
func openSQLite(cfg Config, dir, region string) (*sqliteBackend, error) {
	if dir == "" {
		return nil, errors.New("db: neither a database URL nor a data directory is configured")
	}
	b := &sqliteBackend{
		dir: dir, tenants: filepath.Join(dir, "tenants"), readers: cfg.Readers, maxIdle: cfg.MaxOpenTenants,
		open: map[part]*sqliteStore{}, closing: map[part]int{}, closeDone: make(chan struct{}),
	}
	b.unused.busy, b.unused.others = list.New(), list.New()
	if region != "" {
		b.dir, b.tenants, b.saved = "", filepath.Join(dir, region), "regions"
	}
	if err := os.MkdirAll(b.tenants, 0o700); err != nil {
		return nil, fmt.Errorf("db: %w", err)
	}
	return b, nil
}

func (b *sqliteBackend) name() string { return "sqlite" }

func (b *sqliteBackend) path(p part) string {
	switch {
	case p.tenant == "":
		return filepath.Join(b.dir, "system.db")
	case p.generation == "":
		return filepath.Join(b.tenants, string(p.tenant)+".db")
	}
	return filepath.Join(b.tenants, string(p.tenant)+"."+p.generation+".db")
}

// parts finds the files of a tenant. Ids have no dot.
func (b *sqliteBackend) parts(_ context.Context, id scope.TenantID) ([]part, error) {
	files, err := os.ReadDir(b.tenants)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	found := map[part]bool{}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(f.Name(), "-wal"), "-shm")
		of, rest, _ := strings.Cut(name, ".")
		switch {
		case of != string(id):
		case rest == "db":
			found[part{tenant: id}] = true
		case strings.HasSuffix(rest, ".db"):
			found[part{id, strings.TrimSuffix(rest, ".db")}] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// ownRegions is the subdirectory of the data directory for regions that are not configured.
const ownRegions = "own-regions"

// forWriter has more settings for the writer of a file: the changes of a transaction, and the
// journals of its statements, stay in memory. By default SQLite writes changes beyond 2 MB to the
// file before the commit. Transactions are bounded; migrations are not, and do not use forWriter.
const forWriter = "&_pragma=cache_spill(0)&_pragma=temp_store(2)"

// dsn returns the address of a file with the settings of every connection. Only mode "rwc" creates a
// missing file: a dropped tenant must not reappear as an empty store.
func (b *sqliteBackend) dsn(p part, mode string, queryOnly bool) string {
	q := url.Values{}
	q.Set("mode", mode)
	q.Set("_busy_timeout", "2000")
	q.Set("_journal_mode", "WAL")
	q.Set("_synchronous", "FULL") // an acknowledged change survives a power cut
	q.Set("_foreign_keys", "on")
	q.Set("_txlock", "immediate")
	q.Set("_dqs", "false")
	if queryOnly {
		q.Set("_query_only", "1")
	}
	u := url.URL{Scheme: "file", Path: b.path(p), RawQuery: q.Encode()}
	if !filepath.IsAbs(u.Path) {
		u = url.URL{Scheme: "file", Opaque: (&url.URL{Path: u.Path}).EscapedPath(), RawQuery: u.RawQuery}
	}
	return u.String()
}

// use returns an open store and keeps it open until done is called.
func (b *sqliteBackend) use(p part) (s *sqliteStore, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fmt.Errorf("%w: closed", errUnavailable)
	}
	s = b.open[p]
	if s == nil {
		s = &sqliteStore{
			part:   p,
			writer: newSQLiteWriter(b.dsn(p, "rw", false) + forWriter),
			reads:  newSQLiteReaders(b.dsn(p, "rw", true), b.readers),
			opened: b.trims,
		}
		b.open[p] = s
	}
	s.leave()
	s.users++
	s.used = true
	return s, func() { b.done(s) }, nil
}

// done ends one use and closes stores beyond the limit.
func (b *sqliteBackend) done(s *sqliteStore) {
	var excess []*sqliteStore
	b.mu.Lock()
	s.users--
	switch {
	case s.users > 0:
	case s.gone || s.closed: // closing counts it already
		excess = append(excess, s)
	case s.part.tenant != "":
		most := b.maxIdle
		if s.list = b.unused.busy; b.trims == s.opened {
			s.list, most = b.unused.others, min(b.maxIdle, newIdle)
		}
		s.place = s.list.PushBack(s)
		for s.list.Len() > most {
			excess = append(excess, b.remove(s.list.Front()))
		}
		b.planTrim()
	}
	b.mu.Unlock()
	for _, old := range excess {
		_ = b.finishClosing(old) // an idle file that fails to close loses nothing
	}
}

// finishClosing closes the connections of a store that closing counts and that has no users.
func (b *sqliteBackend) finishClosing(s *sqliteStore) error {
	err := s.closeAll()
	if s.gone { // a connection that was just opened may have created them again
		err = errors.Join(err, b.unlink(s.part, "-wal", "-shm"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing[s.part]--; b.closing[s.part] == 0 {
		delete(b.closing, s.part)
		close(b.closeDone)
		b.closeDone = make(chan struct{})
	}
	return err
}

// unlink removes files of a store.
func (b *sqliteBackend) unlink(p part, suffixes ...string) error {
	var errs []error
	for _, suffix := range suffixes {
		if err := os.Remove(b.path(p) + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// waitClosed waits until all connections to an earlier file of the same name are closed.
func (b *sqliteBackend) waitClosed(ctx context.Context, p part) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for {
		b.mu.Lock()
		left, changed := b.closing[p], b.closeDone
		b.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: an earlier file of the same name is still in use", errUnavailable)
		case <-changed:
		}
	}
}

// closeTimeout is how long a new store waits for the readers of a dropped one.
const closeTimeout = 5 * time.Second

// leave removes the store from its list of unused stores. The caller holds the backend's mu.
func (s *sqliteStore) leave() {
	if s.list != nil {
		s.list.Remove(s.place)
		s.list, s.place = nil, nil
	}
}

// remove removes an unused store from open and counts it in closing. The caller holds mu, and must
// call finishClosing without it.
func (b *sqliteBackend) remove(e *list.Element) *sqliteStore {
	s := e.Value.(*sqliteStore)
	s.leave()
	delete(b.open, s.part)
	b.closing[s.part]++
	return s
}

// idle returns the number of stores without users. The caller holds mu.
func (b *sqliteBackend) idle() int { return b.unused.busy.Len() + b.unused.others.Len() }

// planTrim starts the timer of the next trim if there may be files to close. The caller holds mu.
func (b *sqliteBackend) planTrim() {
	if b.timer == nil && b.idle() > keptIdle && !b.closed {
		b.timer = time.AfterFunc(trimEvery, b.trim)
	}
}

// trim closes stores that were not used since the last trim, the longest unused first.
func (b *sqliteBackend) trim() {
	var excess []*sqliteStore
	b.mu.Lock()
	b.timer = nil
	b.trims++
	for _, l := range []*list.List{b.unused.others, b.unused.busy} {
		var next *list.Element
		for e := l.Front(); e != nil && b.idle() > keptIdle; e = next {
			next = e.Next()
			if s := e.Value.(*sqliteStore); s.used {
				s.used = false
				continue
			}
			excess = append(excess, b.remove(e))
		}
	}
	b.planTrim()
	b.mu.Unlock()
	for _, s := range excess {
		_ = b.finishClosing(s) // an idle file that fails to close loses nothing
	}
}

// closeAll closes the connections of a store without users.
func (s *sqliteStore) closeAll() error {
	return errors.Join(s.reads.close(), s.writer.close())
}

func (b *sqliteBackend) begin(ctx context.Context, p part, write bool) (txn, error) {
	s, done, err := b.use(p)
	if err != nil {
		return nil, err
	}
	var t txn
	if write {
		t, err = s.writer.begin(ctx, done)
	} else {
		t, err = s.reads.begin(ctx, done)
	}
	if err != nil {
		done()
		return nil, err
	}
	return t, nil
}

func (b *sqliteBackend) provision(ctx context.Context, p part, check func() error) error {
	there, err := b.exists(ctx, p)
	switch {
	case err != nil:
		return translate(ctx, err)
	case there:
		t, err := b.begin(ctx, p, false)
		if err != nil {
			return translate(ctx, err)
		}
		ok, err := upToDate(ctx, t, p.tenant)
		t.rollback()
		if ok || err != nil {
			return translate(ctx, err)
		}
	default:
		if err := b.waitClosed(ctx, p); err != nil {
			return translate(ctx, err)
		}
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
	}
	_, done, err := b.use(p) // so that drop counts the connection below
	if err != nil {
		return translate(ctx, err)
	}
	defer done()
	connector, err := sqlite.NewConnector(b.dsn(p, "rwc", false))
	if err != nil {
		return translate(ctx, err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	err = errors.Join(migrate(ctx, pool, sqliteDialect(), p.tenant, nil), pool.Close())
	if err == nil {
		err = syncDir(filepath.Dir(b.path(p)))
	}
	return translate(ctx, err)
}

// syncDir makes new and removed names of files in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (b *sqliteBackend) exists(_ context.Context, p part) (bool, error) {
	_, err := os.Stat(b.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (b *sqliteBackend) drop(_ context.Context, p part, check func() error) error {
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	s := b.open[p]
	delete(b.open, p)
	idle := s != nil && s.users == 0
	if s != nil {
		s.gone = true
		s.leave()
		b.closing[p]++
	}
	b.mu.Unlock()
	var errs []error
	if idle {
		errs = append(errs, b.finishClosing(s))
	}
	return errors.Join(append(errs, b.unlink(p, "", "-wal", "-shm"), syncDir(b.tenants))...)
}

// sizeQuery omits free pages.
func (b *sqliteBackend) sizeQuery() string {
	return `SELECT (p.page_count - f.freelist_count) * s.page_size FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s`
}

// ping reads from the system store. A region has none, so there ping checks its directory.
func (b *sqliteBackend) ping(ctx context.Context) error {
	if b.dir != "" {
		return pingSystem(ctx, b)
	}
	_, err := os.Stat(b.tenants)
	return err
}

func (b *sqliteBackend) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.open {
		n += s.reads.count() + s.writer.count()
	}
	return n
}

func (b *sqliteBackend) close() error {
	b.mu.Lock()
	b.closed = true
	var idle []*sqliteStore
	for p, s := range b.open {
		s.closed = true
		b.closing[p]++
		if s.users == 0 {
			idle = append(idle, s)
		}
		delete(b.open, p)
	}
	b.unused.busy.Init()
	b.unused.others.Init()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, b.finishClosing(s))
	}
	return errors.Join(errs...)
}
