package enforce

import (
	"sync"
	"testing"
)

// heldRequests holds requests at the application until release. A request that ends before it
// arrives there fails the test, which would otherwise wait for ever.
type heldRequests struct {
	size     int
	arrived  chan struct{}
	failures chan string
	end      chan struct{}
	release  func() // idempotent; defer it before the application closes
}

func holdRequests(size int) *heldRequests {
	c := &heldRequests{size: size, arrived: make(chan struct{}, size), failures: make(chan string, size), end: make(chan struct{})}
	c.release = sync.OnceFunc(func() { close(c.end) })
	return c
}

// hold is called by the application for each request. It returns after release.
func (c *heldRequests) hold() {
	c.arrived <- struct{}{}
	<-c.end
}

// fail records that a request failed.
func (c *heldRequests) fail(problem string) { c.failures <- problem }

// wait returns when all requests have arrived at the application.
func (c *heldRequests) wait(t *testing.T) {
	t.Helper()
	for range c.size {
		select {
		case <-c.arrived:
		case problem := <-c.failures:
			t.Fatalf("a request ended before the application held it: %s", problem)
		}
	}
}

// check reports the requests that failed. Call it after all of them have ended.
func (c *heldRequests) check(t *testing.T) {
	t.Helper()
	close(c.failures)
	for problem := range c.failures {
		t.Error(problem)
	}
}
