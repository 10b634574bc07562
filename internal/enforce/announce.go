package enforce

import "sync"

// announcement is the state that ensures that Config.Serving is called only once.
type announcement struct {
	mu      sync.Mutex
	address string // of the open listener; empty: not open yet
	done    bool
}

// noteListening records that the listener is open.
func (b *Bouncer) noteListening(address string) {
	b.announced.mu.Lock()
	b.announced.address = address
	b.announced.mu.Unlock()
	if b.state.Load().Set == nil {
		b.log.Warn("there is no bundle yet; until the first one arrives, requests are refused, or pass in shadow mode", "url", b.cfg.URL)
	}
	b.announce()
}

// announce calls Config.Serving as soon as the listener is open and a bundle is active.
func (b *Bouncer) announce() {
	a := &b.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done || a.address == "" || b.state.Load().Set == nil || b.cfg.Serving == nil {
		return
	}
	a.done = true
	b.cfg.Serving(a.address)
}
