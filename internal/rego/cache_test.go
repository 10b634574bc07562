package rego

import (
	"testing"
	"time"
)

func TestCacheTTL(t *testing.T) {
	c := NewCache(1 << 20)
	at := func(d time.Duration) time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).Add(d) }
	key := []byte("key")
	c.put(1, key, verdict{reason: "r"}, at(0))
	for name, tc := range map[string]struct {
		now, ttl time.Duration
		want     bool
	}{
		"young":                   {time.Minute, time.Hour, true},
		"as old as it may be":     {time.Hour, time.Hour, true},
		"too old":                 {time.Hour + 1, time.Hour, false},
		"no bound":                {1000 * time.Hour, 0, true},
		"a clock a little behind": {-time.Second, time.Minute, true},
		"a clock set back":        {-time.Hour, time.Minute, false},
	} {
		if v := c.get(1, key, &Options{Now: at(tc.now), CacheTTL: tc.ttl}); (v != nil) != tc.want {
			t.Errorf("%s: %v", name, v)
		}
	}
}
