package stats

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// BusyUsers is the kind of the counters of users. They are by day, those of the other kinds by
// hour.
const BusyUsers Kind = "u|"

// Activity is the number of decisions of one user or resource.
type Activity struct {
	Subject string
	// Now counts the current day or hour. Before counts the earlier ones that have decisions,
	// oldest first.
	Now    int64
	Before []int64
}

// Activity returns the users (by day) or resources (by hour) with at least this many decisions in
// the current day or hour, the busiest first, with their history since from.
func (rd *Reader) Activity(ctx context.Context, tenant scope.TenantID, env scope.Env, kind Kind, now, from time.Time, least int64) ([]Activity, error) {
	width := Hour
	if kind == BusyUsers {
		width = Day
	}
	running := width.Start(now)
	var out []Activity
	err := rd.Cluster.Read(ctx, tenant, func(tx *db.Tx) error {
		out = nil
		busy, err := busyIn(ctx, tx, kind, running, env, least)
		if err != nil || len(busy) == 0 {
			return err
		}
		at := make(map[string]int, len(busy))
		names := make([]string, len(busy))
		for i, b := range busy {
			at[b.Name], names[i] = i, b.Name
			out = append(out, Activity{Subject: b.Name, Now: b.N})
		}
		history, err := historyOf(ctx, tx, kind, env, names, width.Start(from), running)
		for _, h := range history {
			a := &out[at[h.Name]]
			a.Before = append(a.Before, h.N)
		}
		return err
	})
	return out, err
}

// Source is the activity of one address.
type Source struct {
	Address           string
	Permitted, Denied int64
	// Users and Resources count the different users and resources of the denials.
	Users, Resources int
}

// maxSampled is the largest number of permits, and of denials, that Sources reads.
const maxSampled = 20_000

// Sources groups the newest decisions of [from, to) by the address of the caller. It returns the
// addresses with denials.
func (rd *Reader) Sources(ctx context.Context, tenant scope.TenantID, env scope.Env, from, to time.Time) ([]Source, error) {
	type seen struct {
		*Source
		users, resources map[string]bool
	}
	byAddress := map[string]seen{}
	var out []Source
	err := rd.Cluster.Read(ctx, tenant, func(tx *db.Tx) error {
		clear(byAddress)
		denied, err := newestFrom(ctx, tx, env, "DENY", from, to, maxSampled)
		if err != nil {
			return err
		}
		for _, r := range denied {
			if r.Address == "" {
				continue
			}
			s, ok := byAddress[r.Address]
			if !ok {
				s = seen{&Source{Address: r.Address}, map[string]bool{}, map[string]bool{}}
				byAddress[r.Address] = s
			}
			s.Denied++
			s.users[r.User], s.resources[r.Resource] = true, true
		}
		permitted, err := newestFrom(ctx, tx, env, "PERMIT", from, to, maxSampled)
		for _, r := range permitted {
			if s, ok := byAddress[r.Address]; ok {
				s.Permitted++
			}
		}
		return err
	})
	for _, s := range byAddress {
		s.Users, s.Resources = len(s.users), len(s.resources)
		out = append(out, *s.Source)
	}
	return out, err
}
