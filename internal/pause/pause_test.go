package pause

import (
	"context"
	"testing"
	"time"
)

func TestFor(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	if !For(ctx, time.Millisecond) {
		t.Error("a pause was cut short")
	}
	done := make(chan bool)
	go func() { done <- For(ctx, time.Hour) }()
	end()
	if <-done {
		t.Error("a pause of an hour is over at once")
	}
}
