package db

import (
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// watchers are the functions to call on changes.
type watchers struct {
	mu   sync.RWMutex
	list []*watcher
}

type watcher struct {
	fn func(tenant scope.TenantID, name string)
}

// Watch calls fn after the commit of each Bump and Notify on any replica, until stop is called. An
// empty tenant is the system store. If the connection to other replicas was lost, fn is called with
// an empty tenant and an empty name once it is restored, because anything may have changed. fn must
// return at once: it runs in the goroutine of the commit or of the listener. SQLite only reports
// changes of this process.
func (c *Cluster) Watch(fn func(tenant scope.TenantID, name string)) (stop func()) {
	return c.watch.add(fn)
}

func (w *watchers) add(fn func(scope.TenantID, string)) (stop func()) {
	one := &watcher{fn: fn}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(slices.Clone(w.list), one)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = slices.DeleteFunc(slices.Clone(w.list), func(x *watcher) bool { return x == one })
	}
}

func (w *watchers) notify(tenant scope.TenantID, name string) {
	w.mu.RLock()
	list := w.list
	w.mu.RUnlock()
	for _, one := range list {
		one.fn(tenant, name)
	}
}

// announcement returns the text that announces a change to other replicas. onAnnouncement reads it.
func announcement(tenant scope.TenantID, name string) string {
	return string(tenant) + "\n" + name
}

// onAnnouncement handles an announcement of another replica. An empty payload means that some may
// have been missed.
func (c *Cluster) onAnnouncement(payload string) {
	tenant, name, _ := strings.Cut(payload, "\n")
	c.watch.notify(scope.TenantID(tenant), name)
}
